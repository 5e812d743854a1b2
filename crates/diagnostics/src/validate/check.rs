//! Whether a run computed what the reference says, and wrote nothing else.

use std::ops::Range;
use std::time::Duration;

use rayon::prelude::*;

use super::cases::{Case, Work};
use super::expected::Expected;
use super::operands::{Operands, stored};
use super::report::Worst;
use hipvit::error::Result;
use hipvit::exec::unpack;
use hipvit::graph::plan::Plan;
use hipvit::ops::{GridMask, Op};
use hipvit::reference::{Mismatch, check_close};
use hipvit::tensor::DType;

/// The contents of memory before a run: no number in any of the dtypes.
pub(super) const FILL: u8 = 0xff;
/// Bytes before and after everything that a run may access.
pub(super) const MARGIN: usize = 4096;

/// What a run left behind.
pub(super) struct Run {
    /// All of it, the margins included.
    pub(super) memory: Vec<u8>,
    /// What lies where in it; everything else must be unchanged.
    pub(super) regions: Vec<(Range<usize>, Content)>,
    /// Bytes that had to be read and written.
    pub(super) bytes: u64,
}

/// Executes a batch of so many runs, and returns its time.
pub type Batch<'a> = &'a mut dyn FnMut(usize) -> Result<Duration>;

/// Times a case that can be run again: called with the time of the first run and the maximum number of runs in a batch.
pub(super) type Clock<'a> = &'a mut dyn FnMut(Duration, usize, Batch<'_>) -> Result<()>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Of this index, which must not change.
    Operand(usize),
    Result,
    /// Another result of the op.
    Other,
}

/// The regions of a plan's arena behind the margin. The first steps put the operands `placed` there, the last computes the
/// results, of which number `result` is checked.
pub(super) fn regions(plan: &Plan, placed: &[usize], result: usize) -> Vec<(Range<usize>, Content)> {
    let contents = placed
        .iter()
        .map(|&index| Content::Operand(index))
        .chain((0..result).map(|_| Content::Other))
        .chain([Content::Result])
        .chain(std::iter::repeat(Content::Other));
    let range = |offset: usize, bytes: usize| MARGIN + offset..MARGIN + offset + bytes;
    let mut regions: Vec<_> = plan
        .buffers()
        .iter()
        .map(|buffer| range(buffer.offset, buffer.bytes))
        .zip(contents)
        .collect();
    // An operand that the result overwrote is gone.
    let result = regions.iter().find(|(_, content)| *content == Content::Result);
    if let Some((result, _)) = result.cloned() {
        regions.retain(|(range, content)| {
            !matches!(content, Content::Operand(_)) || range.start != result.start
        });
    }
    regions
}

/// Times of a run, by batches of runs that follow each other, so that a GPU's include no launch from the host where the
/// run takes longer than that. `batch` returns the time of this many. Returns each batch's time per run, and the runs.
pub(super) fn time(
    first: Duration,
    most: usize,
    mut batch: impl FnMut(usize) -> Result<Duration>,
) -> Result<(Vec<Duration>, usize)> {
    const LONG: Duration = Duration::from_millis(100);
    // The first run may have loaded code.
    let first = if first > LONG { first } else { batch(1)? };
    let runs = Duration::from_micros(500).as_nanos() / first.as_nanos().max(1);
    let runs = usize::try_from(runs).unwrap_or(most).clamp(1, most);
    let mut times = Vec::new();
    while again(first, runs, &times) {
        times.push(batch(runs)? / u32::try_from(runs).unwrap_or(1));
    }
    let count = times.len() * runs;
    Ok((times, count))
}

/// Whether the times are not enough for a median.
fn again(first: Duration, runs: usize, times: &[Duration]) -> bool {
    let total: Duration = times.iter().sum::<Duration>() * u32::try_from(runs).unwrap_or(1);
    match times.len() {
        0 => true,
        1.. if first > Duration::from_millis(100) => false,
        1..3 => true,
        3..20 => total < Duration::from_millis(10),
        _ => false,
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) elementwise: Option<f64>,
    pub(super) normwise: Option<f64>,
    /// Why it fails.
    pub(super) failure: Option<String>,
    pub(super) worst: Option<Worst>,
}

pub(super) fn check(
    case: &Case,
    operands: &Operands,
    expected: &Expected,
    run: &Run,
    dtype: DType,
) -> Verdict {
    let mut verdict = Verdict::default();
    let result = run
        .regions
        .iter()
        .find(|(_, content)| *content == Content::Result);
    let Some(result) = result.and_then(|(range, _)| run.memory.get(range.clone())) else {
        verdict.failure = Some("has no result".into());
        return verdict;
    };
    // A GPU's key masks are bytes in every dtype.
    let is_bytes =
        matches!(case.work, Work::Op(Op::GridMask(GridMask))) && result.len() == expected.values.len();
    let values = match case.result_dtype(dtype) {
        _ if is_bytes => result.iter().map(|&byte| byte.into()).collect(),
        DType::U8 => result.iter().map(|&byte| byte.into()).collect(),
        result_dtype => unpack(result, result_dtype),
    };
    compare(case, &values, expected, &mut verdict);
    if verdict.failure.is_none() {
        verdict.failure = overwritten(operands, run, dtype);
    }
    verdict
}

fn compare(case: &Case, values: &[f32], expected: &Expected, verdict: &mut Verdict) {
    let count = expected.rows.len().max(1);
    let channels = expected.values.len() / count;
    // Rows that are not compared must have been written too.
    if let Some(index) = values.par_iter().position_first(|value| !value.is_finite()) {
        let sampled = expected
            .rows
            .iter()
            .position(|&row| row == index / channels.max(1));
        verdict.failure = Some("is not finite".into());
        verdict.worst = Some(Worst {
            index,
            got: f64::from(values[index]),
            want: sampled.map(|row| expected.values[row * channels + index % channels]),
        });
        return;
    }
    let mut sampled = Vec::with_capacity(expected.values.len());
    for &row in &expected.rows {
        sampled.extend_from_slice(
            values
                .get(row * channels..(row + 1) * channels)
                .unwrap_or_default(),
        );
    }
    let difference = match check_close(&sampled, &expected.values, expected.tolerance) {
        Ok(difference) => difference,
        Err(Mismatch::Far { difference, .. }) => {
            verdict.failure = Some("differs too much from the reference".into());
            difference
        }
        Err(mismatch @ Mismatch::Length { .. }) => {
            verdict.failure = Some(format!("{}: {mismatch}", case.op_name()));
            return;
        }
    };
    verdict.elementwise = Some(difference.elementwise);
    verdict.normwise = Some(difference.normwise);
    verdict.worst = expected
        .rows
        .get(difference.worst / channels.max(1))
        .map(|row| Worst {
            index: row * channels + difference.worst % channels,
            got: difference.candidate,
            want: Some(difference.reference),
        });
}

/// What was overwritten beside the result.
fn overwritten(operands: &Operands, run: &Run, dtype: DType) -> Option<String> {
    let mut regions: Vec<_> = run.regions.iter().collect();
    regions.sort_by_key(|(range, _)| range.start);
    let mut end = 0;
    for (range, content) in regions {
        if let Some(message) = changed(run, end..range.start) {
            return Some(message);
        }
        end = range.end;
        if let Content::Operand(index) = *content {
            let before = stored(&operands.tensors[index], dtype);
            let after = &run.memory[range.clone()];
            let at = before.par_iter().zip(after).position_first(|(b, a)| b != a);
            if let Some(at) = at {
                return Some(format!("operand {index} was overwritten at byte {at}"));
            }
        }
    }
    changed(run, end..run.memory.len())
}

/// The first byte of a gap that changed, counted from the first byte behind the margin.
fn changed(run: &Run, gap: Range<usize>) -> Option<String> {
    let at = run.memory[gap.clone()]
        .par_iter()
        .position_first(|&byte| byte != FILL)?;
    let offset = (gap.start + at) as i64 - MARGIN as i64;
    Some(format!(
        "memory that is not the result's was overwritten at byte {offset}"
    ))
}

/// The median, if anything was timed.
pub(super) fn median(times: &[Duration]) -> Option<Duration> {
    let mut timed = times.to_vec();
    timed.sort_unstable();
    timed.get(timed.len() / 2).copied()
}
