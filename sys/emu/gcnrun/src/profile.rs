//! Counts of a launch: instructions by kind, LDS cycles, memory traffic. [`recorder`] counts while blocks run, [`class`] sorts
//! instructions by the unit that executes them, [`lds`] counts bank conflicts.

mod class;
mod lds;
mod recorder;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use class::Class;
pub(crate) use recorder::{Access, Recorder};

/// Counts of a profiled launch: of the blocks that ran, which [`Profile::scale`] extends to all.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Profile {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Blocks that ran; everything below counts these alone.
    pub sampled_blocks: u64,
    /// Waves of the blocks that ran.
    pub waves: u64,
    /// Wave instructions.
    pub instructions: u64,
    /// Wave instructions by the unit that executes them.
    pub classes: BTreeMap<Class, u64>,
    /// Active lanes of the vector instructions, summed, by the unit that executes them. Divided by `classes` and the lanes of a
    /// wave: how little the waves diverge. Matrix instructions are left out: they work on all lanes.
    pub active_lanes: BTreeMap<Class, u64>,
    /// Wave instructions by mnemonic, without the suffix of the encoding. A dual instruction counts as its two halves, joined by `::`.
    pub opcodes: BTreeMap<String, u64>,
    /// Accesses to LDS.
    pub lds: LdsTraffic,
    /// Loads from global memory, by vector instructions.
    pub loads: Traffic,
    /// Stores to global memory.
    pub stores: Traffic,
    /// Bytes that lanes load from and store to scratch memory.
    pub scratch_bytes: u64,
    /// Latencies that waves could not overlap with other accesses, summed over the waves.
    pub latencies: Latencies,
}

impl Profile {
    /// Factor from the counts to those of the whole grid: 1 if every block ran.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.blocks as f64 / self.sampled_blocks.max(1) as f64
    }
}

/// LDS accesses of the blocks that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct LdsTraffic {
    /// Bytes that lanes load.
    pub load_bytes: u64,
    /// Bytes that lanes store or update.
    pub store_bytes: u64,
    /// Cycles in which the 32 banks are busy.
    pub cycles: u64,
    /// Cycles of `cycles` that bank conflicts cause.
    pub conflict_cycles: u64,
}

/// Accesses to global memory, of the blocks that ran. A line is 128 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Traffic {
    /// Wave instructions with at least one active lane.
    pub instructions: u64,
    /// Bytes that lanes access.
    pub bytes: u64,
    /// Bytes moved, where bytes that several lanes of an instruction access count once. Divided by the bytes of `segments_128` it
    /// shows how well accesses are coalesced.
    pub distinct_bytes: u64,
    /// Segments of 64 bytes, counted once per instruction.
    pub segments_64: u64,
    /// Segments of 128 bytes, counted once per instruction.
    pub segments_128: u64,
    /// Distinct lines, counted once per block.
    pub block_lines: u64,
    /// Distinct lines, but for `common_lines`: those that belong to one block or a few.
    pub lines: u64,
    /// Distinct lines that at least an eighth of the blocks access: what all blocks share, such as weights. With every
    /// block of the grid run there is no need to tell them apart, and they are 0.
    pub common_lines: u64,
    /// Lines, counted once for each of eight groups of blocks. Blocks belong to the groups in turn, as GPUs of eight dies with a
    /// cache each distribute them.
    pub lines_of_8: u64,
    /// Common lines, counted once for each of eight groups of blocks. See `lines_of_8`.
    pub common_lines_of_8: u64,
}

/// Latencies on the path of a wave, by what it waited for. A wait counts if the access was issued after the wait that was
/// counted last: accesses that were under way together cost one latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Latencies {
    /// Waits for vector memory.
    pub memory: u64,
    /// Waits for LDS.
    pub lds: u64,
    /// Waits for scalar loads.
    pub scalar: u64,
}
