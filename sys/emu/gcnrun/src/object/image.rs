//! The loaded segments of a code object, and their relocation.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSegment, ObjectSymbol, RelocationFlags, RelocationTarget, elf};

use super::error::{LoadError, damaged};

pub(super) type Elf<'data> = ElfFile64<'data, LittleEndian>;

// Numbers of LLVM's guide that the `object` crate lacks.
const R_AMDGPU_ABS32_LO: elf::RelocationType = elf::RelocationType(1);
const R_AMDGPU_ABS64: elf::RelocationType = elf::RelocationType(3);
const R_AMDGPU_ABS32: elf::RelocationType = elf::RelocationType(6);
const R_AMDGPU_RELATIVE64: elf::RelocationType = elf::RelocationType(13);

/// The loaded segments, before relocation.
pub(super) struct Image {
    pub(super) bytes: Vec<u8>,
}

/// More is no kernel's object, but a damaged one.
const LARGEST_IMAGE: u64 = 1 << 31;

impl Image {
    pub(super) fn of(file: &Elf<'_>) -> Result<Self, LoadError> {
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
    pub(super) fn relocated(mut self, file: &Elf<'_>, address: u64) -> Result<Vec<u8>, LoadError> {
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
