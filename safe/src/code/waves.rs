//! Wave sizes of compiled kernels.

use object::elf::{EM_AMDGPU, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _};

/// Bytes of a kernel's descriptor, the symbol `<kernel>.kd`. The constants below are the offset of the code properties, and the bit for
/// waves of 32 lanes. LLVM, "User Guide for AMDGPU Backend", kernel descriptor. Before gfx10 the bit is 0.
const DESCRIPTOR: u64 = 64;
const PROPERTIES: usize = 56;
const WAVE32: u16 = 1 << 10;

/// Returns the kernels of an AMD code object with the wave size that each was compiled for. Empty for other files.
pub(super) fn wave_sizes(elf: &[u8]) -> Vec<(String, u32)> {
    let Ok(file) = ElfFile64::<LittleEndian>::parse(elf) else {
        return Vec::new();
    };
    let header: &FileHeader64<LittleEndian> = file.elf_header();
    if header.e_machine(LittleEndian) != EM_AMDGPU {
        return Vec::new();
    }
    // The loader finds kernels by these symbols, so stripping keeps them.
    file.dynamic_symbols()
        .filter_map(|symbol| {
            let name = symbol.name().ok()?.strip_suffix(".kd")?;
            let section = file.section_by_index(symbol.section_index()?).ok()?;
            let descriptor = section.data_range(symbol.address(), DESCRIPTOR).ok()??;
            let properties = descriptor.get(PROPERTIES..)?.first_chunk::<2>()?;
            let wave32 = u16::from_le_bytes(*properties) & WAVE32 != 0;
            Some((name.to_owned(), if wave32 { 32 } else { 64 }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_tell_the_lanes() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/code");
        for (file, lanes) in [
            ("gfx1100.elf", 32),
            ("gfx1100-wave64.elf", 64),
            ("gfx90a.elf", 64),
        ] {
            let mut elf = std::fs::read(format!("{folder}/{file}")).unwrap();
            assert_eq!(wave_sizes(&elf), [("scale".to_owned(), lanes)], "{file}");
            for len in 0..elf.len() {
                wave_sizes(&elf[..len]);
            }
            for at in 0..elf.len() {
                elf[at] ^= 0xff;
                wave_sizes(&elf);
                elf[at] ^= 0xff;
            }
        }
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(wave_sizes(&program).is_empty(), "is for another machine");
    }
}
