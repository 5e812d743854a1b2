//! `all_reduce`: the sum over 2 to 4 GPUs, directly over memory that they share, then bias and residual. `all_reduce_norm` also normalises
//! the rows.

use hipvit_graph::op::AllReduce;

use super::Unit;
use super::call::AllReduceCall;
use super::lower::{Call, Lower, Lowering};
use std::borrow::Cow;

use super::bindings::{
    ALL_REDUCE_BLOCKS, ALL_REDUCE_HEADER, ALL_REDUCE_NORM_THREADS, ALL_REDUCE_RANKS, ALL_REDUCE_THREADS,
    AllReduceArgs, AllReduceControl, LayerNormArgs, VEC128_BYTES,
};
use super::launch::check_channels;
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, optional,
    visit_epilogue,
};

/// Maximum lanes of a wave.
const LARGEST_WAVE: u32 = 64;

/// Bytes of a vec128 per thread of a block.
const ROUND: usize = (VEC128_BYTES * ALL_REDUCE_THREADS) as usize;

/// Parameters of an `all_reduce` that all ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllReduceGroup {
    ranks: u32,
    blocks: u32,
    rounds: u32,
    /// Time-out in milliseconds.
    timeout: u32,
}

impl AllReduceGroup {
    /// Creates a group for messages of `capacity` bytes, on GPUs with at least `compute_units` compute units.
    ///
    /// # Errors
    ///
    /// The kernel does not support this number of ranks.
    pub(crate) fn new(
        ranks: usize,
        compute_units: u32,
        capacity: usize,
        timeout: std::time::Duration,
    ) -> Result<Self, KernelError> {
        let blocks = compute_units.clamp(1, ALL_REDUCE_BLOCKS);
        match extent(ranks)? {
            ranks @ 2..=ALL_REDUCE_RANKS => Ok(Self {
                ranks,
                blocks,
                rounds: extent(capacity.div_ceil(blocks as usize * ROUND).max(1))?,
                timeout: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            }),
            _ => Err(KernelError::Unsupported(format!(
                "sums over 2 to {ALL_REDUCE_RANKS} GPUs, not {ranks}"
            ))),
        }
    }

    /// Returns the bytes of memory that each rank shares with the others.
    pub(crate) fn shared_bytes(&self) -> usize {
        let parts = 2 * self.blocks as usize * self.ranks as usize;
        ALL_REDUCE_HEADER as usize + parts * self.rounds as usize * ROUND
    }

    /// Number of words of host memory per rank: [`AllReduceControl`].
    pub(crate) const WORDS: usize = size_of::<AllReduceControl>() / 4;
    /// Index of the word with 1 + the missing rank.
    pub(crate) const MISSING: usize = std::mem::offset_of!(AllReduceControl, missing) / 4;
    /// Index of the word that aborts all waits if it is not 0.
    pub(crate) const ABORT: usize = std::mem::offset_of!(AllReduceControl, abort) / 4;

    /// Returns the rows of a matrix that one launch sums. The matrix has `channels` elements of `element` bytes per row.
    pub(crate) fn rows(&self, channels: usize, element: usize) -> usize {
        let of_row = (channels * element).div_ceil(VEC128_BYTES as usize).max(1);
        (self.blocks * self.rounds * ALL_REDUCE_THREADS) as usize / of_row
    }

    /// Returns the rows of such a matrix that one launch sums and normalises. 0 if a row is too long for a block.
    pub(crate) fn normalized_rows(&self, channels: usize, element: usize) -> usize {
        let vecs = (channels * element).div_ceil(VEC128_BYTES as usize).max(1);
        let rounds = self.rounds * ALL_REDUCE_THREADS / ALL_REDUCE_NORM_THREADS;
        // Smaller waves give as many rows or more.
        let rows = extent(vecs).map_or(0, |vecs| rows_of_block(vecs, LARGEST_WAVE));
        (self.blocks * rounds * rows) as usize
    }

    /// Creates the arguments of rank `rank` for `[x, bias, residual, out]`: `x`, `residual` and `out` are `[rows, channels]`, `bias` is
    /// `[channels]`. Bias and residual may be null. `shared` has every rank's shared memory, `control` is this rank's host memory.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits, or the number of ranks differs from the group's.
    pub(crate) fn arguments(
        &self,
        rank: usize,
        [x, bias, residual, out]: [DeviceAddress; 4],
        [rows, channels]: [usize; 2],
        shared: &[DeviceAddress],
        control: DeviceAddress,
    ) -> Result<AllReduceArgs, KernelError> {
        let own = shared.get(rank).filter(|_| shared.len() == self.ranks as usize);
        let outside =
            || KernelError::Internal(format!("rank {rank} of {} is not in the group", shared.len()));
        let own = *own.ok_or_else(outside)?;
        let mut peers = [DeviceAddress::NULL; ALL_REDUCE_RANKS as usize];
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
            norm_weight: DeviceAddress::NULL,
            norm_bias: DeviceAddress::NULL,
            norm_out: DeviceAddress::NULL,
            rows: extent(rows)?,
            channels: extent(channels)?,
            rank: extent(rank)?,
            ranks,
            blocks,
            rounds,
            timeout,
            epsilon: 0.0,
        })
    }
}

impl AllReduceArgs {
    /// Adds a norm of the result, with the parameters of `norm`.
    pub(crate) fn then(self, norm: &LayerNormArgs) -> Self {
        Self {
            norm_weight: norm.weight,
            norm_bias: norm.bias,
            norm_out: norm.out,
            epsilon: norm.epsilon,
            ..self
        }
    }

    fn normalizes(&self) -> bool {
        !self.norm_out.is_null()
    }
}

/// Returns the rows of this many vec128s that a block of `all_reduce_norm` takes at once. Each row takes whole waves.
fn rows_of_block(vecs: u32, wave_size: u32) -> u32 {
    ALL_REDUCE_NORM_THREADS / wave_size / vecs.div_ceil(wave_size)
}

// SAFETY: see hip/all_reduce.hip. A thread takes a vec128 in each round, and each of `blocks` blocks as many vec128s or whole rows as
// `plan` computes. It ensures that the shared memory has space for all rounds. Each thread reads an element of x and of the residual before
// it writes what may alias them.
unsafe impl KernelArguments for AllReduceArgs {
    const FILE: &'static str = "all_reduce";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(if self.normalizes() {
            "all_reduce_norm"
        } else {
            "all_reduce"
        }
        .into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check_channels(self.channels)?;
        let vecs = u64::from(self.channels).div_ceil(target.vec128());
        let (items, of_block, threads) = if self.normalizes() {
            let rows = rows_of_block(extent(vecs as usize)?, target.wave_size);
            (u64::from(self.rows), u64::from(rows), ALL_REDUCE_NORM_THREADS)
        } else {
            (
                u64::from(self.rows) * vecs,
                u64::from(ALL_REDUCE_THREADS),
                ALL_REDUCE_THREADS,
            )
        };
        let rounds = u64::from(self.rounds * ALL_REDUCE_THREADS / threads);
        if items > of_block * u64::from(self.blocks) * rounds {
            return Err(KernelError::Unsupported(format!(
                "a message of {} x {} elements exceeds what one launch sums",
                self.rows, self.channels
            )));
        }
        let blocks = items
            .checked_div(of_block)
            .map_or(0, |_| items.div_ceil(of_block));
        target.blocks(blocks.min(self.blocks.into()), threads)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let (all, row) = (
            bytes(element, &[self.rows, self.channels]),
            bytes(element, &[self.channels]),
        );
        visit(Access::read("x", self.x, all));
        let epilogue = [self.bias, self.residual, self.out];
        visit_epilogue(epilogue, [element; 2], [self.rows, self.channels], visit);
        visit(optional(Access::read("norm_weight", self.norm_weight, row)));
        visit(optional(Access::read("norm_bias", self.norm_bias, row)));
        visit(optional(Access::write("norm_out", self.norm_out, all)));
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

impl Lower for AllReduce {
    fn unit(&self) -> Option<Unit> {
        (self.bias || self.residual).then(|| Unit::of("bias_activation"))
    }

    /// Sums with bias and residual, in place if the plan says so.
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [rows, channels] = step.matrix()?;
        let residual = if self.residual {
            step.address(1 + usize::from(self.bias))?
        } else {
            DeviceAddress::NULL
        };
        Ok(vec![Call::AllReduce(AllReduceCall {
            from: step.address(0)?,
            to: step.out,
            bias: if self.bias {
                step.address(1)?
            } else {
                DeviceAddress::NULL
            },
            residual,
            rows,
            channels,
            dtype: step.plan.dtype(),
        })])
    }
}
