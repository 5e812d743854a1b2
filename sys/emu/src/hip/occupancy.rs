//! How many blocks of a kernel a multiprocessor holds at once: by its waves, vector registers and LDS.

use hip_provider::hip::put;
use hipvit_sys::hip::{hipError_t, hipFunction_t};

use super::hip;
use super::module::{Function, find_function};
use crate::parts::{Part, THREADS_PER_BLOCK};

/// Maximum number of resident blocks of a multiprocessor.
const BLOCKS: u32 = 32;

/// Resident waves of a SIMD unit, for a kernel with this many vector registers.
fn waves_per_simd(part: &Part, registers: u32) -> u32 {
    let taken = registers.max(1).next_multiple_of(part.vector_granule);
    (part.vector_registers / taken).min(part.waves_per_simd)
}

fn fitting(part: &Part, registers: u32, threads: u32, lds: u32) -> u32 {
    let waves = threads.div_ceil(part.wave).max(1);
    let by_waves = waves_per_simd(part, registers) * part.simds / waves;
    let by_lds = part.lds.checked_div(lds).unwrap_or(BLOCKS);
    by_waves.min(by_lds).min(BLOCKS)
}

/// Blocks of `threads` work-items with `dynamic` bytes of dynamic LDS.
pub(super) fn blocks_per_multiprocessor(function: &Function, threads: u32, dynamic: u32) -> u32 {
    let info = &function.info;
    // Accumulation registers begin at a multiple of four.
    let registers = match info.agprs {
        0 => info.vgprs,
        agprs => info.vgprs.next_multiple_of(4) + agprs,
    };
    fitting(function.part(), registers, threads, info.lds + dynamic)
}

fn active(function: hipFunction_t, block: i32, shared: usize) -> Result<i32, hipError_t> {
    let function = find_function(function)?;
    let threads = u32::try_from(block).map_err(|_| hipError_t::hipErrorInvalidValue)?;
    let shared = u32::try_from(shared).map_err(|_| hipError_t::hipErrorInvalidValue)?;
    if threads == 0 {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    if threads > function.info.max_block.min(THREADS_PER_BLOCK) || shared > function.dynamic_lds() {
        return Ok(0);
    }
    Ok(blocks_per_multiprocessor(&function, threads, shared).cast_signed())
}

/// The number of blocks that fills the device, and the block size with the most resident work-items; the largest if several have.
fn best(function: hipFunction_t, shared: usize, limit: i32) -> Result<(i32, i32), hipError_t> {
    let found = find_function(function)?;
    let part = found.part();
    let most = found.info.max_block.min(THREADS_PER_BLOCK).cast_signed();
    let limit = if limit > 0 { limit.min(most) } else { most };
    let wave = part.wave.cast_signed();
    let mut best = (0, 0, 0);
    for block in (1..=limit / wave)
        .map(|waves| waves * wave)
        .chain((limit < wave).then_some(limit))
    {
        let blocks = active(function, block, shared)?;
        if blocks * block >= best.0 {
            best = (blocks * block, blocks, block);
        }
    }
    Ok((best.1 * part.multiprocessors.cast_signed(), best.2))
}

hip! {
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, function: hipFunction_t, block: i32, shared: usize,
    ) {
        put(blocks, active(function, block, shared)?)
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut i32, function: hipFunction_t, block: i32, shared: usize, _flags: u32,
    ) {
        put(blocks, active(function, block, shared)?)
    }

    fn hipModuleOccupancyMaxPotentialBlockSize(
        grid: *mut i32, block: *mut i32, function: hipFunction_t, shared: usize, limit: i32,
    ) {
        let (blocks, size) = best(function, shared, limit)?;
        put(grid, blocks)?;
        put(block, size)
    }

    fn hipModuleOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut i32, block: *mut i32, function: hipFunction_t, shared: usize, limit: i32, _flags: u32,
    ) {
        let (blocks, size) = best(function, shared, limit)?;
        put(grid, blocks)?;
        put(block, size)
    }
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
