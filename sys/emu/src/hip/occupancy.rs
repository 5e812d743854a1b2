//! HIP's functions for occupancy.

use hip_provider::hip::put;
use hipvit_sys::hip::{hipError_t, hipFunction_t};

use super::hip;
use super::module::find_function;
use super::residency::blocks_per_multiprocessor;
use crate::parts::THREADS_PER_BLOCK;

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
    Ok(blocks_per_multiprocessor(function.part(), &function.info, threads, shared).cast_signed())
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
