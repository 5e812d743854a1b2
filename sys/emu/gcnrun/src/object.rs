//! Code objects: what a compiler made for an AMD GPU, loaded into the address space.
//!
//! The layout is that of LLVM's "User Guide for AMDGPU Backend" (code object versions 3 to 6): an ELF with the kernels'
//! metadata as MessagePack in a note, and for each kernel a descriptor of 64 bytes, whose symbol ends in `.kd`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{LittleEndian, Object, ObjectSegment, ObjectSymbol, RelocationFlags, RelocationTarget, elf};
use serde::Deserialize;

use crate::cache::Key;
use crate::decode::Code;
use crate::disassembly::disassemble;
use crate::fault::MemoryError;
use crate::memory::{Kind, Memory};

/// A code object, loaded for one device.
#[derive(Debug)]
pub struct Program {
    pub(crate) memory: Memory,
    pub(crate) device: u32,
    /// Where the object's address 0 lies.
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
    /// It is no code object, or a damaged one.
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
    Memory(MemoryError),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACodeObject { reason } => write!(f, "no AMD code object: {reason}"),
            Self::UnknownArch { arch } => write!(f, "{arch} is an architecture that gcnrun lacks"),
            Self::Disassembly { reason } => write!(f, "cannot disassemble: {reason}"),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<MemoryError> for LoadError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

fn damaged(reason: impl fmt::Display) -> LoadError {
    LoadError::NotACodeObject {
        reason: reason.to_string(),
    }
}

/// What a launch needs to know of a kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) info: KernelInfo,
    pub(crate) descriptor: Descriptor,
    pub(crate) hidden: Vec<Argument>,
    /// Vector and accumulation registers of a lane.
    pub(crate) allocated: (u32, u32),
}

/// A kernel descriptor: what the hardware is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    /// Address in the object of the first instruction.
    pub(crate) entry: u64,
    rsrc1: u32,
    rsrc2: u32,
    rsrc3: u32,
    properties: u16,
}

impl Descriptor {
    fn parse(bytes: &[u8; 64], address: u64) -> Self {
        let dword = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let offset = u64::from(dword(16)) | u64::from(dword(20)) << 32;
        Self {
            entry: address.wrapping_add(offset),
            rsrc3: dword(44),
            rsrc1: dword(48),
            rsrc2: dword(52),
            properties: dword(56) as u16,
        }
    }

    /// Whether a user SGPR is asked for; bits as in `kernel_code_properties`.
    pub(crate) fn has(&self, property: u32) -> bool {
        self.properties >> property & 1 == 1
    }

    pub(crate) fn user_sgprs(&self) -> usize {
        (self.rsrc2 >> 1 & 31) as usize
    }

    pub(crate) fn uses_scratch(&self) -> bool {
        self.rsrc2 & 1 == 1
    }

    /// Which of the block's three indices are wanted in SGPRs.
    pub(crate) fn block_index(&self, axis: usize) -> bool {
        self.rsrc2 >> (7 + axis) & 1 == 1
    }

    pub(crate) fn block_info(&self) -> bool {
        self.rsrc2 >> 10 & 1 == 1
    }

    /// How many of a work-item's three indices are wanted in VGPRs.
    pub(crate) fn item_indices(&self) -> usize {
        (self.rsrc2 >> 11 & 3) as usize + 1
    }

    /// Two bits for f32, two for f16 and f64: inputs (1) and results (2) keep denormals.
    pub(crate) fn denormals(&self) -> (u8, u8) {
        ((self.rsrc1 >> 16 & 3) as u8, (self.rsrc1 >> 18 & 3) as u8)
    }

    /// Vector and accumulation registers as allocated.
    fn registers(&self, arch: &str, wave_size: u32) -> (u32, u32) {
        let granule = if has_unified_registers(arch) || wave_size == 32 {
            8
        } else {
            4
        };
        let total = ((self.rsrc1 & 63) + 1) * granule;
        if has_unified_registers(arch) {
            let vector = (((self.rsrc3 & 63) + 1) * 4).min(total);
            (vector, total - vector)
        } else if arch == "gfx908" {
            (total, total)
        } else {
            (total, 0)
        }
    }
}

/// Whether accumulation registers are the upper part of the vector registers.
fn has_unified_registers(arch: &str) -> bool {
    matches!(arch, "gfx90a" | "gfx940" | "gfx941" | "gfx942" | "gfx950")
}

/// What an architecture gives its waves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// The hardware knows each wave's scratch memory, and kernels do nothing for it.
    pub(crate) architected_flat_scratch: bool,
    /// A work-item's three indices lie in one VGPR, ten bits each.
    pub(crate) packed_items: bool,
}

impl Traits {
    pub(crate) fn of(arch: &str) -> Option<Self> {
        let (architected_flat_scratch, packed_items) = match arch {
            "gfx906" | "gfx908" => (false, false),
            "gfx90a" => (false, true),
            "gfx940" | "gfx941" | "gfx942" | "gfx950" => (true, true),
            _ if arch.starts_with("gfx103") => (false, false),
            _ if arch.starts_with("gfx11") => (true, true),
            _ => return None,
        };
        Some(Self {
            architected_flat_scratch,
            packed_items,
        })
    }
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "amdhsa.target")]
    target: String,
    #[serde(rename = "amdhsa.kernels", default)]
    kernels: Vec<KernelMetadata>,
}

#[derive(Deserialize)]
struct KernelMetadata {
    #[serde(rename = ".name")]
    name: String,
    #[serde(rename = ".symbol")]
    symbol: String,
    #[serde(rename = ".args", default)]
    arguments: Vec<ArgumentMetadata>,
    #[serde(rename = ".kernarg_segment_size")]
    kernarg_size: u32,
    #[serde(rename = ".group_segment_fixed_size")]
    lds: u32,
    #[serde(rename = ".private_segment_fixed_size")]
    scratch: u32,
    #[serde(rename = ".uses_dynamic_stack", default)]
    dynamic_stack: bool,
    #[serde(rename = ".wavefront_size")]
    wave_size: u32,
    #[serde(rename = ".sgpr_count")]
    sgprs: u32,
    #[serde(rename = ".vgpr_count")]
    vgprs: u32,
    #[serde(rename = ".agpr_count", default)]
    agprs: u32,
    #[serde(rename = ".sgpr_spill_count", default)]
    spilled_sgprs: u32,
    #[serde(rename = ".vgpr_spill_count", default)]
    spilled_vgprs: u32,
    #[serde(rename = ".max_flat_workgroup_size", default = "most")]
    max_block: u32,
}

fn most() -> u32 {
    1024
}

#[derive(Deserialize)]
struct ArgumentMetadata {
    #[serde(rename = ".offset")]
    offset: u32,
    #[serde(rename = ".size")]
    size: u32,
    #[serde(rename = ".value_kind")]
    kind: String,
}

/// What a lane with a stack of unknown depth gets beside its fixed scratch memory.
const DYNAMIC_STACK: u32 = 16384;

// Numbers of LLVM's guide that the `object` crate lacks.
const NT_AMDGPU_METADATA: elf::NoteType = elf::NoteType(32);
const R_AMDGPU_ABS32_LO: elf::RelocationType = elf::RelocationType(1);
const R_AMDGPU_ABS64: elf::RelocationType = elf::RelocationType(3);
const R_AMDGPU_ABS32: elf::RelocationType = elf::RelocationType(6);
const R_AMDGPU_RELATIVE64: elf::RelocationType = elf::RelocationType(13);

type Elf<'data> = ElfFile64<'data, LittleEndian>;

impl Program {
    /// Loads the ELF of a code object for `device`: its variables lie in `memory` while the program lives.
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

    /// Disassembles and decodes it now, and not at the first launch.
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

    /// The lanes of its waves: 32 or 64.
    #[must_use]
    pub fn wave_size(&self) -> u32 {
        self.wave_size
    }

    /// Its kernels.
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

    /// Its global variables.
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
        // A pointer to a variable that outlives its program is told from other stray pointers, like any freed memory.
        let _ = self.memory.free(self.image);
    }
}

/// The kernels' metadata, from the note that holds it.
fn metadata(file: &Elf<'_>, data: &[u8]) -> Result<Metadata, LoadError> {
    for section in file.elf_section_table().iter() {
        let Some(mut notes) = section.notes(LittleEndian, data).map_err(damaged)? else {
            continue;
        };
        while let Some(note) = notes.next().map_err(damaged)? {
            if note.name() == b"AMDGPU" && note.n_type(LittleEndian) == NT_AMDGPU_METADATA {
                return rmp_serde::from_slice(note.desc()).map_err(damaged);
            }
        }
    }
    Err(damaged("it has no metadata note of AMDGPU"))
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

/// The loaded segments, before relocation.
struct Image {
    bytes: Vec<u8>,
}

/// More is no kernel's object, but a damaged one.
const LARGEST_IMAGE: u64 = 1 << 31;

impl Image {
    fn of(file: &Elf<'_>) -> Result<Self, LoadError> {
        let end = file
            .segments()
            .map(|segment| segment.address().saturating_add(segment.size()))
            .max()
            .unwrap_or(0);
        if end == 0 || end > LARGEST_IMAGE {
            return Err(damaged(format!("its segments end at {end:#x}")));
        }
        let mut bytes = vec![0; end as usize];
        for segment in file.segments() {
            let data = segment.data().map_err(damaged)?;
            let at = segment.address() as usize;
            let length = data.len().min(segment.size() as usize);
            bytes[at..at + length].copy_from_slice(&data[..length]);
        }
        Ok(Self { bytes })
    }

    /// The bytes as they are at `address`.
    fn relocated(mut self, file: &Elf<'_>, address: u64) -> Result<Vec<u8>, LoadError> {
        for (offset, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                return Err(damaged("a relocation of an unknown form"));
            };
            let symbol = match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let symbol = file
                        .dynamic_symbol_table()
                        .and_then(|table| object::ObjectSymbolTable::symbol_by_index(&table, index).ok());
                    symbol.map_or(0, |symbol| symbol.address())
                }
                _ => 0,
            };
            let value = address
                .wrapping_add(symbol)
                .wrapping_add(relocation.addend() as u64);
            let width = match r_type {
                R_AMDGPU_RELATIVE64 | R_AMDGPU_ABS64 => 8,
                R_AMDGPU_ABS32 | R_AMDGPU_ABS32_LO => 4,
                _ => return Err(damaged(format!("relocations of type {r_type}"))),
            };
            let at = offset as usize;
            self.bytes
                .get_mut(at..at + width)
                .ok_or_else(|| damaged("a relocation outside its segments"))?
                .copy_from_slice(&value.to_le_bytes()[..width]);
        }
        Ok(self.bytes)
    }
}

/// The instructions of an object: decoded when first run, and shared by all programs that loaded the same bytes.
struct LazyCode {
    elf: Vec<u8>,
    arch: String,
    wave_size: u32,
    code: OnceLock<Result<Code, LoadError>>,
}

impl fmt::Debug for LazyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyCode")
            .field("decoded", &self.code.get().is_some())
            .finish_non_exhaustive()
    }
}

impl LazyCode {
    fn shared(elf: &[u8], arch: &str, wave_size: u32) -> Arc<Self> {
        static LOADED: Mutex<Option<HashMap<Key, Weak<LazyCode>>>> = Mutex::new(None);
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default();
        loaded.retain(|_, code| code.strong_count() > 0);
        let key = Key::of(&[elf]);
        if let Some(code) = loaded.get(&key).and_then(Weak::upgrade) {
            return code;
        }
        let code = Arc::new(Self {
            elf: elf.to_vec(),
            arch: arch.to_owned(),
            wave_size,
            code: OnceLock::new(),
        });
        loaded.insert(key, Arc::downgrade(&code));
        code
    }

    fn get(&self) -> Result<&Code, LoadError> {
        self.code
            .get_or_init(|| {
                let text = disassemble(&self.elf, &self.arch)?;
                Ok(Code::decode(text, &self.arch, self.wave_size))
            })
            .as_ref()
            .map_err(Clone::clone)
    }
}
