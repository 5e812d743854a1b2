//! All-reduces of a tensor-parallel model. A builtin kernel computes small ones over memory that the GPUs share. RCCL computes larger ones,
//! and all of them if the GPUs cannot access each other's memory.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::lower::AllReduceCall;
use crate::error::{Error, Result};
use crate::exec::select::AllReduceKind;
use crate::hip::{Device, DeviceAddress, Operand, Stream, SymmetricMemory};
use crate::kernels::{AllReduceGroup, KernelError, Kernels, LayerNormArgs, Unit};
use crate::tensor::DType;

/// Maximum number of bytes per launch. The GPUs share twice as much memory for each rank.
const CAPACITY: usize = 16 << 20;

/// Maximum time that a rank waits for another one, as in RCCL's watchdog.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the maximum size in bytes of a message that the kernel sums by default. Each rank sends its whole part to every other rank. With
/// two GPUs no algorithm sends less; with four GPUs this is twice the minimum.
///
/// The limits were measured against NCCL as parts of models, on two H100s and on four H200s (docs/scaling.md). They include bias, residual
/// and norm, which NCCL leaves to other kernels.
fn limit(ranks: usize) -> usize {
    match ranks {
        ..=2 => CAPACITY,
        _ => 2 << 20,
    }
}

/// Reason why RCCL computes all sums.
#[derive(Clone, Debug)]
pub(super) struct NoDirect {
    pub(super) reason: String,
    /// True if the GPUs can access each other's memory but setting that up failed.
    pub(super) failed: bool,
}

impl NoDirect {
    /// Returns a reason for a deliberate choice, not a failure.
    pub(super) fn chosen(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            failed: false,
        }
    }
}

/// State that the ranks share.
#[derive(Debug)]
pub(super) struct DirectGroup {
    group: AllReduceGroup,
    memory: SymmetricMemory,
    kind: AllReduceKind,
    limit: usize,
    timeout: Duration,
}

/// A rank and the kernel for its GPU.
#[derive(Clone, Debug)]
pub(super) struct DirectRank {
    shared: Arc<DirectGroup>,
    kernels: Arc<Kernels>,
    rank: usize,
}

impl DirectGroup {
    /// Returns a rank on each of the streams. The inner error says why RCCL computes all sums.
    ///
    /// # Errors
    ///
    /// `kind` is [`AllReduceKind::Direct`], but the GPUs do not support it.
    pub(super) fn ranks(
        streams: &[Stream],
        dtype: DType,
        kind: AllReduceKind,
    ) -> Result<std::result::Result<Vec<DirectRank>, NoDirect>> {
        if kind == AllReduceKind::Library {
            return Ok(Err(NoDirect::chosen("as requested")));
        }
        match Self::with_timeout(streams, dtype, kind, TIMEOUT) {
            Ok(ranks) => Ok(Ok(ranks)),
            Err(error) if kind == AllReduceKind::Direct => {
                let reason = format!("the GPUs cannot sum directly: {error}");
                Err(Error::argument("all-reduce", reason))
            }
            Err(error) => Ok(Err(NoDirect {
                // Missing peer access or too many GPUs are no failure.
                failed: !matches!(error, Error::Device { .. } | Error::Kernel { .. }),
                reason: error.to_string(),
            })),
        }
    }

    pub(super) fn with_timeout(
        streams: &[Stream],
        dtype: DType,
        kind: AllReduceKind,
        timeout: Duration,
    ) -> Result<Vec<DirectRank>> {
        let devices: Vec<&Device> = streams.iter().map(Stream::device).collect();
        for (one, other) in devices.iter().flat_map(|a| devices.iter().map(move |b| (a, b))) {
            if !one.can_access_peer(other)? {
                let reason = format!("cannot access the memory of {}", other.name());
                return Err(Error::device(one.name(), reason));
            }
        }
        let compute_units = devices.iter().map(|device| device.properties().compute_units);
        let group = AllReduceGroup::new(
            devices.len(),
            compute_units.min().unwrap_or_default(),
            CAPACITY,
            timeout,
        )
        .map_err(|reason| Error::kernel("all-reduce", reason))?;
        let shared = Arc::new(Self {
            group,
            memory: SymmetricMemory::new(streams, group.shared_bytes(), AllReduceGroup::WORDS)?,
            kind,
            limit: limit(devices.len()),
            timeout,
        });
        let rank = |(rank, device): (usize, &&Device)| {
            Ok(DirectRank {
                shared: shared.clone(),
                kernels: Arc::new(Kernels::load(device, dtype, [Unit::of("all_reduce")])?),
                rank,
            })
        };
        devices.iter().enumerate().map(rank).collect()
    }

    /// Aborts all waits on the GPUs permanently.
    pub(super) fn abort(&self) {
        for rank in 0..self.memory.ranks() {
            // Each rank has this word.
            let _ = self.memory.store(rank, AllReduceGroup::ABORT, 1);
        }
    }
}

/// Names the implementation of the sums.
impl fmt::Display for DirectGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AllReduceKind::Direct => f.write_str("all_reduce over peer memory (as requested)"),
            _ => write!(
                f,
                "all_reduce over peer memory up to {} KiB, RCCL above",
                self.limit >> 10
            ),
        }
    }
}

impl DirectRank {
    pub(super) fn group(&self) -> &Arc<DirectGroup> {
        &self.shared
    }

    /// Returns true if the kernel sums a message, false if RCCL does. The result is the same on all ranks.
    ///
    /// If results must not depend on the batch size, the kernel computes all sums, in several launches if needed.
    pub(super) fn takes(&self, call: &AllReduceCall, reproducible: bool) -> bool {
        let possible = self.shared.group.rows(call.channels, call.dtype.size()) > 0;
        possible
            && (reproducible
                || self.shared.kind == AllReduceKind::Direct
                || call.bytes() <= self.shared.limit)
    }

    /// Returns true if [`submit`](Self::submit) can compute this norm of a sum in the same launch.
    ///
    /// The norm's result may overwrite the sum's operands in the same row, but not in other rows, which are read later.
    pub(super) fn normalizes(&self, call: &AllReduceCall, norm: &LayerNormArgs) -> bool {
        let bytes = call.bytes();
        let apart = |at: DeviceAddress| norm.out.offset(bytes) <= at || at.offset(bytes) <= norm.out;
        let safe = |at: DeviceAddress| at.is_null() || at == norm.out || apart(at);
        let of_sum = LayerNormArgs {
            x: call.to,
            weight: norm.weight,
            bias: norm.bias,
            out: norm.out,
            rows: norm.rows,
            channels: norm.channels,
            epsilon: norm.epsilon,
            ..LayerNormArgs::default()
        };
        *norm == of_sum
            && (norm.rows as usize, norm.channels as usize) == (call.rows, call.channels)
            && call.rows
                <= self
                    .shared
                    .group
                    .normalized_rows(call.channels, call.dtype.size())
            && safe(call.from)
            && safe(call.residual)
            && apart(call.to)
    }

    /// Submits the sum with bias and residual, and a norm if [`normalizes`](Self::normalizes) returns true. `operands` is the memory of all
    /// operands.
    pub(super) fn submit(
        &self,
        call: &AllReduceCall,
        norm: Option<&LayerNormArgs>,
        stream: &Stream,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        let DirectGroup { group, memory, .. } = &*self.shared;
        let control = memory.words(self.rank)?;
        let mut operands = operands.to_vec();
        let first = operands.len();
        for rank in 0..memory.ranks() {
            operands.push(memory.operand(rank)?);
        }
        let shared: Vec<DeviceAddress> = operands[first..].iter().map(Operand::address).collect();
        operands.push(control);
        let row = call.channels * call.dtype.size();
        let most = group.rows(call.channels, call.dtype.size());
        if most == 0 {
            let reason = format!(
                "a row of {} channels exceeds the memory that the GPUs share",
                call.channels
            );
            return Err(Error::kernel("all-reduce", KernelError::Unsupported(reason)));
        }
        for begin in (0..call.rows).step_by(most) {
            let at = |address: DeviceAddress| {
                if address.is_null() {
                    address
                } else {
                    address.offset(begin * row)
                }
            };
            let addresses = [at(call.from), call.bias, at(call.residual), at(call.to)];
            let matrix = [most.min(call.rows - begin), call.channels];
            let arguments = group
                .arguments(self.rank, addresses, matrix, &shared, control.address())
                .map_err(|reason| Error::kernel("all-reduce", reason))?;
            let arguments = norm.map_or(arguments, |norm| arguments.then(norm));
            self.kernels.launch(stream, arguments, &operands)?;
        }
        Ok(())
    }

    /// Checks the finished sums of the rank.
    ///
    /// # Errors
    ///
    /// Another rank timed out, and the results are undefined.
    pub(super) fn check(&self) -> Result<()> {
        let DirectGroup { memory, timeout, .. } = &*self.shared;
        match memory.load(self.rank, AllReduceGroup::MISSING)? {
            0 => Ok(()),
            missing => {
                let reason = format!(
                    "rank {} has waited for rank {} longer than {} s; its GPU is lost, or busy with other work",
                    self.rank,
                    missing - 1,
                    timeout.as_secs_f64()
                );
                Err(Error::device(self.kernels.device().name(), reason))
            }
        }
    }
}

/// All-reduces over memory that 2 to 4 GPUs of one process share. Tensor parallelism uses them for small messages.
#[derive(Debug)]
pub struct PeerAllReduce {
    ranks: Vec<DirectRank>,
    streams: Vec<Stream>,
    dtype: DType,
}

/// Operands of one rank of a [`PeerAllReduce`]: out = sum of all ranks' x + bias + residual, row-major.
#[derive(Clone, Copy, Debug)]
pub struct PeerSum<'a> {
    /// This rank's part, `[rows, channels]`.
    pub x: Operand<'a>,
    /// `[channels]`.
    pub bias: Option<Operand<'a>>,
    /// `[rows, channels]`.
    pub residual: Option<Operand<'a>>,
    /// `[rows, channels]`. May alias `x` or `residual`.
    pub out: Operand<'a>,
    /// Optional norm of the rows of `out`.
    pub norm: Option<PeerNorm<'a>>,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub channels: usize,
}

/// Norm of the rows of a [`PeerSum`]: LayerNorm with the biased variance, or the RMS norm.
#[derive(Clone, Copy, Debug)]
pub struct PeerNorm<'a> {
    /// `[channels]`.
    pub weight: Operand<'a>,
    /// `[channels]`. `None` for the RMS norm.
    pub bias: Option<Operand<'a>>,
    /// Added to the variance, or to the mean square.
    pub epsilon: f32,
    /// `[rows, channels]`. May alias the sum's `x` or `residual`, and overlaps with nothing else.
    pub out: Operand<'a>,
}

impl PeerAllReduce {
    /// Creates a rank on each stream, for operands of `dtype`. A rank waits for another one for at most `timeout`.
    ///
    /// # Errors
    ///
    /// There are not 2 to 4 GPUs, a GPU cannot access another's memory, or the kernel cannot be compiled or loaded.
    pub fn new(streams: &[Stream], dtype: DType, timeout: Duration) -> Result<Self> {
        Ok(Self {
            ranks: DirectGroup::with_timeout(streams, dtype, AllReduceKind::Direct, timeout)?,
            streams: streams.to_vec(),
            dtype,
        })
    }

    /// Submits rank `rank`'s part of a sum to its stream. All ranks must submit the same sums in the same order. Can be captured in a
    /// graph.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist or an operand is too small.
    pub fn submit(&self, rank: usize, sum: PeerSum<'_>) -> Result<()> {
        let member = self.rank(rank)?;
        let address =
            |operand: Option<Operand<'_>>| operand.map_or(DeviceAddress::NULL, |operand| operand.address());
        let call = AllReduceCall {
            from: sum.x.address(),
            to: sum.out.address(),
            bias: address(sum.bias),
            residual: address(sum.residual),
            rows: sum.rows,
            channels: sum.channels,
            dtype: self.dtype,
        };
        let mut operands = vec![sum.out, sum.x];
        operands.extend(sum.bias.into_iter().chain(sum.residual));
        let norm = sum.norm.map(|norm| {
            operands.extend([norm.weight, norm.out]);
            operands.extend(norm.bias);
            let addresses = [sum.out, norm.weight].map(|operand| operand.address());
            let addresses = [addresses[0], addresses[1], address(norm.bias), norm.out.address()];
            LayerNormArgs::new(addresses, [sum.rows, sum.channels], norm.epsilon)
        });
        let norm = norm
            .transpose()
            .map_err(|reason| Error::kernel("all-reduce", reason))?;
        if norm.as_ref().is_some_and(|norm| !member.normalizes(&call, norm)) {
            let reason =
                "the norm's result overlaps with an operand, or the matrix is too large for one launch";
            return Err(Error::argument("all-reduce", reason));
        }
        member.submit(&call, norm.as_ref(), &self.streams[rank], &operands)
    }

    /// Checks rank `rank`'s sums. Call it once they have finished.
    ///
    /// # Errors
    ///
    /// Another rank timed out. These results and those of all later sums are undefined.
    pub fn check(&self, rank: usize) -> Result<()> {
        self.rank(rank)?.check()
    }

    /// Aborts all waits permanently.
    pub fn abort(&self) {
        if let Some(first) = self.ranks.first() {
            first.group().abort();
        }
    }

    fn rank(&self, rank: usize) -> Result<&DirectRank> {
        let reason = || Error::argument("rank", format!("{rank} of {}", self.ranks.len()));
        self.ranks.get(rank).ok_or_else(reason)
    }
}
