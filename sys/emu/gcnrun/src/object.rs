//! Code objects: what a compiler made for an AMD GPU, loaded into the address space.

use crate::memory::Memory;

/// A code object, loaded for one device.
#[derive(Debug)]
pub struct Program {
    pub(crate) memory: Memory,
    pub(crate) device: u32,
    arch: String,
    wave_size: u32,
    kernels: Vec<KernelInfo>,
    variables: Vec<Variable>,
}

/// A kernel of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Its name, as [`Launch`](crate::Launch) takes it.
    pub name: String,
    /// Its explicit arguments.
    pub arguments: Vec<Argument>,
    /// Bytes of all explicit arguments with the padding between them.
    pub arguments_size: u32,
    /// Bytes of the kernel argument segment: the explicit and the hidden arguments.
    pub kernarg_size: u32,
    /// Bytes of LDS that it declares.
    pub lds: u32,
    /// Bytes of scratch memory of a lane.
    pub scratch: u32,
    /// Vector registers, accumulation registers not counted.
    pub vgprs: u32,
    /// Accumulation registers.
    pub agprs: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// Vector registers spilled to scratch memory.
    pub spilled_vgprs: u32,
    /// Scalar registers spilled.
    pub spilled_sgprs: u32,
    /// The most work-items that a block may have.
    pub max_block: u32,
}

/// An explicit argument of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its first byte in the kernel argument segment.
    pub offset: u32,
    /// Its bytes.
    pub size: u32,
    /// What it is, as the metadata says: `by_value`, `global_buffer`, …
    pub kind: String,
}

/// A global variable of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name (of C++, mangled).
    pub name: String,
    /// Its address in the [`Memory`].
    pub address: u64,
    /// Its bytes.
    pub size: u64,
}

/// Why a code object cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It is no code object.
    NotACodeObject {
        /// What it is or lacks.
        reason: String,
    },
    /// The emulator does not know its architecture.
    UnknownArch {
        /// The architecture.
        arch: String,
    },
    /// It could not be disassembled.
    Disassembly {
        /// Why, and what to install.
        reason: String,
    },
    /// There is no memory for it.
    Memory(crate::fault::MemoryError),
}

impl Program {
    /// Loads the ELF of a code object for `device`: its variables lie in `memory` while the program lives.
    pub fn load(memory: &Memory, device: u32, _elf: &[u8]) -> Result<Self, LoadError> {
        let _ = (memory, device);
        Err(LoadError::NotACodeObject {
            reason: "not built yet".to_owned(),
        })
    }

    /// The architecture, as `gfx942`.
    #[must_use]
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// The lanes of its waves: 32 or 64.
    #[must_use]
    pub fn wave_size(&self) -> u32 {
        self.wave_size
    }

    /// Its kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &KernelInfo> {
        self.kernels.iter()
    }

    /// The kernel of that name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<&KernelInfo> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// Its global variables.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.variables.iter()
    }
}
