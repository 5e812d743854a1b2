//! Number of blocks of a kernel that a multiprocessor holds at once, by its waves, vector registers and LDS.

use gcnrun::KernelInfo;

use crate::parts::Part;

/// Maximum number of resident blocks of a multiprocessor.
const BLOCKS: u32 = 32;

/// Resident waves of a SIMD unit, for a kernel with this many vector registers.
fn waves_per_simd(part: &Part, registers: u32) -> u32 {
    let taken = registers.max(1).next_multiple_of(part.vector_registers.granule);
    (part.vector_registers.per_simd / taken).min(part.waves_per_simd)
}

fn fitting(part: &Part, registers: u32, threads: u32, lds: u32) -> u32 {
    let waves = threads.div_ceil(part.wave).max(1);
    let by_waves = waves_per_simd(part, registers) * part.simds / waves;
    let by_lds = part.lds.checked_div(lds).unwrap_or(BLOCKS);
    by_waves.min(by_lds).min(BLOCKS)
}

/// Returns the number of resident blocks of `threads` work-items with `dynamic` bytes of dynamic LDS.
pub(super) fn blocks_per_multiprocessor(part: &Part, info: &KernelInfo, threads: u32, dynamic: u32) -> u32 {
    // Accumulation registers begin at a multiple of four.
    let registers = match info.agprs {
        0 => info.vgprs,
        agprs => info.vgprs.next_multiple_of(4) + agprs,
    };
    fitting(part, registers, threads, info.lds + dynamic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::find;

    /// Values of AMD's tables: waves of a SIMD unit by vector registers.
    #[test]
    fn registers_limit_waves() {
        for (arch, registers, waves) in [
            ("gfx908", 24, 10),
            ("gfx908", 25, 9),
            ("gfx908", 256, 1),
            ("gfx90a", 64, 8),
            ("gfx90a", 65, 7),
            ("gfx942", 128, 4),
            ("gfx942", 129, 3),
            ("gfx942", 512, 1),
            ("gfx1100", 96, 16),
            ("gfx1100", 97, 12),
            ("gfx1100", 256, 5),
            ("gfx1030", 64, 16),
            ("gfx1030", 256, 4),
        ] {
            let part = find(arch).unwrap();
            assert_eq!(
                waves_per_simd(part, registers),
                waves,
                "{arch}, {registers} registers"
            );
        }
    }

    #[test]
    fn lds_and_waves_limit_blocks() {
        let part = find("gfx942").unwrap();
        assert_eq!(fitting(part, 32, 256, 0), 8);
        assert_eq!(fitting(part, 32, 256, 20_000), 3);
        assert_eq!(fitting(part, 32, 64, 0), 32);
        assert_eq!(fitting(part, 512, 1024, 0), 0);
    }
}
