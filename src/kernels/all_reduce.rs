//! `all_reduce`: the sum over 2 to 4 GPUs, directly over memory that they share, then bias and residual.

use super::bindings::{
    ALL_REDUCE_BLOCKS, ALL_REDUCE_HEADER, ALL_REDUCE_RANKS, ALL_REDUCE_THREADS, AllReduceArgs,
    AllReduceControl, VEC128_BYTES,
};
use super::launch::check_channels;
use super::{Access, KernelArguments, Launch, Target, extent, visit_biased};

/// Bytes of a vec128 of each thread of a block.
const ROUND: usize = (VEC128_BYTES * ALL_REDUCE_THREADS) as usize;

/// What all ranks of an `all_reduce` have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllReduceGroup {
    ranks: u32,
    blocks: u32,
    rounds: u32,
    /// Milliseconds.
    timeout: u32,
}

impl AllReduceGroup {
    /// For messages of `capacity` bytes, on GPUs that have at least `compute_units` each.
    ///
    /// # Errors
    ///
    /// The kernel does not sum over so many ranks.
    pub(crate) fn new(
        ranks: usize,
        compute_units: u32,
        capacity: usize,
        timeout: std::time::Duration,
    ) -> Result<Self, String> {
        let blocks = compute_units.clamp(1, ALL_REDUCE_BLOCKS);
        match extent(ranks)? {
            ranks @ 2..=ALL_REDUCE_RANKS => Ok(Self {
                ranks,
                blocks,
                rounds: extent(capacity.div_ceil(blocks as usize * ROUND).max(1))?,
                timeout: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            }),
            _ => Err(format!("sums over 2 to {ALL_REDUCE_RANKS} GPUs, not {ranks}")),
        }
    }

    /// Bytes of memory that each rank shares with the others.
    pub(crate) fn shared_bytes(&self) -> usize {
        let parts = 2 * self.blocks as usize * self.ranks as usize;
        ALL_REDUCE_HEADER as usize + parts * self.rounds as usize * ROUND
    }

    /// Words of host memory that each rank has: [`AllReduceControl`].
    pub(crate) const WORDS: usize = size_of::<AllReduceControl>() / 4;
    /// The word that is 1 + the rank which did not come.
    pub(crate) const MISSING: usize = std::mem::offset_of!(AllReduceControl, missing) / 4;
    /// The word that ends all waiting if it is not 0.
    pub(crate) const ABORT: usize = std::mem::offset_of!(AllReduceControl, abort) / 4;

    /// Rows of a matrix of `channels` elements of `element` bytes that one launch sums.
    pub(crate) fn rows(&self, channels: usize, element: usize) -> usize {
        let of_row = (channels * element).div_ceil(VEC128_BYTES as usize).max(1);
        (self.blocks * self.rounds * ALL_REDUCE_THREADS) as usize / of_row
    }

    /// For rank `rank`'s `[x, bias, residual, out]`: `x`, `residual` and `out` are `[rows, channels]`, `bias` `[channels]`; bias and
    /// residual may be 0. `shared` has every rank's shared memory, `control` is this rank's host memory.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits, or the ranks are not the group's.
    pub(crate) fn arguments(
        &self,
        rank: usize,
        [x, bias, residual, out]: [u64; 4],
        [rows, channels]: [usize; 2],
        shared: &[u64],
        control: u64,
    ) -> Result<AllReduceArgs, String> {
        let own = shared.get(rank).filter(|_| shared.len() == self.ranks as usize);
        let own = *own.ok_or_else(|| format!("rank {rank} of {} is not in the group", shared.len()))?;
        let mut peers = [0; ALL_REDUCE_RANKS as usize];
        peers[..shared.len()].copy_from_slice(shared);
        let Self {
            ranks,
            blocks,
            rounds,
            timeout,
        } = *self;
        Ok(AllReduceArgs {
            x,
            bias,
            residual,
            out,
            own,
            peers,
            control,
            rows: extent(rows)?,
            channels: extent(channels)?,
            rank: extent(rank)?,
            ranks,
            blocks,
            rounds,
            timeout,
            reserved: 0,
        })
    }
}

// SAFETY: hip/all_reduce.hip; a thread takes the vec128s at its index and every `blocks * ALL_REDUCE_THREADS` further on, as long as
// there are any, and `plan` sees that these are at most `rounds`, for which the shared memory has space.
unsafe impl KernelArguments for AllReduceArgs {
    const FILE: &'static str = "all_reduce";

    fn plan(&mut self, target: &Target) -> Result<Launch, String> {
        check_channels(self.channels)?;
        let vecs = u64::from(self.rows) * u64::from(self.channels).div_ceil(target.vec128());
        let group = u64::from(self.blocks) * u64::from(ALL_REDUCE_THREADS);
        if vecs > group * u64::from(self.rounds) {
            return Err(format!(
                "a message of {} x {} elements exceeds the memory that the GPUs share",
                self.rows, self.channels
            ));
        }
        target.blocks(
            vecs.div_ceil(u64::from(ALL_REDUCE_THREADS))
                .min(self.blocks.into()),
            ALL_REDUCE_THREADS,
        )
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let operands = [self.x, self.bias, self.residual, self.out];
        visit_biased(operands, [element; 2], [self.rows, self.channels], visit);
        let group = AllReduceGroup {
            ranks: self.ranks,
            blocks: self.blocks,
            rounds: self.rounds,
            timeout: self.timeout,
        };
        let shared = group.shared_bytes();
        visit(Access::write("own", self.own, shared));
        for peer in self.peers.iter().take(self.ranks as usize) {
            visit(Access::write("peers", *peer, shared));
        }
        visit(Access::write(
            "control",
            self.control,
            size_of::<AllReduceControl>(),
        ));
    }
}
