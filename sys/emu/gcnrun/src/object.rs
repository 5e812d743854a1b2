//! Code objects: what a compiler made for an AMD GPU, loaded into the address space.
//!
//! The layout is that of LLVM's "User Guide for AMDGPU Backend" (code object versions 3 to 6). It is an ELF with the kernels'
//! metadata as MessagePack in a note. Each kernel has a descriptor of 64 bytes, whose symbol ends in `.kd`.

mod descriptor;
mod error;
mod image;
mod lazy_code;
mod metadata;

use std::collections::HashMap;
use std::sync::Arc;

use object::read::elf::FileHeader;
use object::{LittleEndian, Object, ObjectSymbol, elf};

use crate::code::Code;
use crate::memory::{Kind, Memory};
pub(crate) use descriptor::Traits;
use descriptor::{Descriptor, has_unified_registers};
pub use error::LoadError;
use error::damaged;
use image::{Elf, Image};
use lazy_code::LazyCode;
use metadata::{KernelMetadata, metadata};

/// A code object loaded for one device.
#[derive(Debug)]
pub struct Program {
    pub(crate) memory: Memory,
    pub(crate) device: u32,
    /// The address at which the object's address 0 is loaded.
    pub(crate) image: u64,
    arch: String,
    wave_size: u32,
    kernels: HashMap<String, Kernel>,
    variables: Vec<Variable>,
    code: Arc<LazyCode>,
}

/// A kernel of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Name of the kernel, as [`Launch`](crate::Launch) takes it.
    pub name: String,
    /// Explicit arguments of the kernel.
    pub arguments: Vec<Argument>,
    /// Bytes of all explicit arguments with the padding between them.
    pub arguments_size: u32,
    /// Bytes of the kernel argument segment: the explicit and the hidden arguments.
    pub kernarg_size: u32,
    /// Bytes of LDS that it declares.
    pub lds: u32,
    /// Bytes of scratch memory per lane.
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
    /// The maximum number of work-items of a block.
    pub max_block: u32,
}

/// An explicit argument of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Offset in the kernel argument segment.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Kind in the metadata: `by_value`, `global_buffer`, …
    pub kind: String,
}

/// A global variable of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable (mangled in C++).
    pub name: String,
    /// Address in the [`Memory`].
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
}

/// A kernel as a launch needs it.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) info: KernelInfo,
    pub(crate) descriptor: Descriptor,
    pub(crate) hidden: Vec<Argument>,
    /// Vector and accumulation registers of a lane.
    pub(crate) allocated: (u32, u32),
}

/// Bytes of scratch memory for a lane whose stack depth is not known at compile time, in addition to the fixed size.
const DYNAMIC_STACK: u32 = 16384;

impl Program {
    /// Loads the ELF of a code object for `device`: its variables live in `memory` as long as the program.
    pub fn load(memory: &Memory, device: u32, elf: &[u8]) -> Result<Self, LoadError> {
        if elf.starts_with(b"__CLANG_OFFLOAD_BUNDLE__") || elf.starts_with(b"CCOB") {
            return Err(damaged(
                "this is an offload bundle, which holds code objects for several architectures",
            ));
        }
        let file = Elf::parse(elf).map_err(damaged)?;
        if file.elf_header().e_machine(LittleEndian) != elf::EM_AMDGPU {
            return Err(damaged("an ELF for another machine"));
        }
        let metadata = metadata(&file, elf)?;
        let arch = metadata
            .target
            .rsplit("--")
            .next()
            .and_then(|arch| arch.split(':').next())
            .unwrap_or_default()
            .to_owned();
        if Traits::of(&arch).is_none() {
            return Err(LoadError::UnknownArch { arch });
        }
        let wave_size = metadata
            .kernels
            .first()
            .map_or(if arch.starts_with("gfx9") { 64 } else { 32 }, |kernel| {
                kernel.wave_size
            });
        let image = Image::of(&file)?;
        let mut kernels = HashMap::new();
        for kernel in metadata.kernels {
            if kernel.wave_size != wave_size {
                return Err(damaged("its kernels differ in their wave size"));
            }
            let kernel = describe(&file, &image, &arch, kernel)?;
            kernels.insert(kernel.info.name.clone(), kernel);
        }

        let address = memory.allocate(image.bytes.len() as u64, Kind::Device(device), 4096)?;
        let program = Self {
            memory: memory.clone(),
            device,
            image: address,
            variables: variables(&file, address),
            wave_size,
            kernels,
            code: LazyCode::shared(elf, &arch, wave_size),
            arch,
        };
        let bytes = image.relocated(&file, address)?;
        memory.write(address, &bytes).map_err(damaged)?;
        Ok(program)
    }

    /// Disassembles and decodes it now instead of at the first launch.
    ///
    /// # Errors
    /// [`LoadError::Disassembly`].
    pub fn decode(&self) -> Result<(), LoadError> {
        self.code.get().map(|_| ())
    }

    /// The architecture, as `gfx942`.
    #[must_use]
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// The wave size: 32 or 64.
    #[must_use]
    pub fn wave_size(&self) -> u32 {
        self.wave_size
    }

    /// Returns the program's kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &KernelInfo> {
        self.kernels.values().map(|kernel| &kernel.info)
    }

    /// The kernel of that name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<&KernelInfo> {
        self.entry(name).map(|kernel| &kernel.info)
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&Kernel> {
        self.kernels.get(name)
    }

    /// Returns the program's global variables.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.variables.iter()
    }

    /// The decoded instructions; the first launch decodes them.
    pub(crate) fn code(&self) -> Result<&Code, LoadError> {
        self.code.get()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Quarantined, so that a use of its variables after this is reported as a use after free.
        let _ = self.memory.free(self.image);
    }
}

fn describe(file: &Elf<'_>, image: &Image, arch: &str, kernel: KernelMetadata) -> Result<Kernel, LoadError> {
    let address = symbols(file)
        .find(|symbol| symbol.name() == Ok(&kernel.symbol))
        .map(|symbol| symbol.address())
        .ok_or_else(|| damaged(format!("{} has no descriptor", kernel.name)))?;
    let bytes = image
        .bytes
        .get(address as usize..)
        .and_then(|bytes| bytes.first_chunk::<64>())
        .ok_or_else(|| damaged(format!("the descriptor of {} is cut off", kernel.name)))?;
    let descriptor = Descriptor::parse(bytes, address);
    let (vgprs, agprs) = descriptor.registers(arch, kernel.wave_size);
    let (hidden, explicit): (Vec<_>, Vec<_>) = kernel
        .arguments
        .into_iter()
        .map(|argument| Argument {
            offset: argument.offset,
            size: argument.size,
            kind: argument.kind,
        })
        .partition(|argument| argument.kind.starts_with("hidden_"));
    if let Some(argument) = hidden.iter().chain(&explicit).find(|argument| {
        u64::from(argument.offset) + u64::from(argument.size) > u64::from(kernel.kernarg_size)
    }) {
        return Err(damaged(format!(
            "an argument of {} ends beyond its {} bytes of arguments: {argument:?}",
            kernel.name, kernel.kernarg_size
        )));
    }
    Ok(Kernel {
        info: KernelInfo {
            arguments_size: explicit
                .iter()
                .map(|argument| argument.offset + argument.size)
                .max()
                .unwrap_or(0),
            arguments: explicit,
            name: kernel.name,
            kernarg_size: kernel.kernarg_size,
            lds: kernel.lds,
            scratch: kernel.scratch + if kernel.dynamic_stack { DYNAMIC_STACK } else { 0 },
            vgprs: if has_unified_registers(arch) {
                kernel.vgprs.min(vgprs)
            } else {
                kernel.vgprs
            },
            agprs: kernel.agprs,
            sgprs: kernel.sgprs,
            spilled_vgprs: kernel.spilled_vgprs,
            spilled_sgprs: kernel.spilled_sgprs,
            max_block: kernel.max_block,
        },
        allocated: (vgprs, agprs),
        descriptor,
        hidden,
    })
}

/// Symbols of both tables: a stripped object has the dynamic one alone.
fn symbols<'data, 'file>(
    file: &'file Elf<'data>,
) -> impl Iterator<Item = impl ObjectSymbol<'data> + use<'data, 'file>> + use<'data, 'file> {
    file.dynamic_symbols().chain(file.symbols())
}

fn variables(file: &Elf<'_>, image: u64) -> Vec<Variable> {
    file.dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Data)
        .filter_map(|symbol| {
            let name = symbol.name().ok()?;
            (!name.ends_with(".kd")).then(|| Variable {
                name: name.to_owned(),
                address: image + symbol.address(),
                size: symbol.size(),
            })
        })
        .collect()
}
