//! Checks that a run computed the reference's values and wrote nothing else.

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

/// Contents of memory before a run: NaN in every dtype.
pub(super) const FILL: u8 = 0xff;
/// Bytes before and after all memory that a run may access.
pub(super) const MARGIN: usize = 4096;

/// Memory and measurements of a run.
pub(super) struct Run {
    /// Contents of the memory, margins included.
    pub(super) memory: Vec<u8>,
    /// Regions with known content. Everything else must be unchanged.
    pub(super) regions: Vec<(Range<usize>, Content)>,
    /// Bytes that had to be read and written.
    pub(super) bytes: u64,
}

/// Executes a batch of this many runs, and returns its time.
pub type Batch<'a> = &'a mut dyn FnMut(usize) -> Result<Duration>;

/// Times a case that can be run again. Takes the time of the first run and the maximum number of runs in a
/// batch.
pub(super) type Clock<'a> = &'a mut dyn FnMut(Duration, usize, Batch<'_>) -> Result<()>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The operand with this index, which must not change.
    Operand(usize),
    Result,
    /// Another result of the op.
    Other,
}

/// Returns the regions of a plan's arena after the margin. The first steps put the operands `placed` there.
/// The last step computes the results, of which the one with index `result` is checked.
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
    // Skip an operand that a result overwrote.
    let results = regions
        .iter()
        .filter(|(_, content)| !matches!(content, Content::Operand(_)));
    let results: Vec<usize> = results.map(|(range, _)| range.start).collect();
    regions.retain(|(range, content)| {
        !matches!(content, Content::Operand(_)) || !results.contains(&range.start)
    });
    regions
}

/// Times runs in at least three batches of about 5 ms. On a GPU, only the first run of a batch includes a launch, if runs take longer than
/// launches.
///
/// `batch` runs this many runs and returns their time. Returns the time per run of each batch, and the total
/// number of runs.
pub(super) fn time(
    first: Duration,
    most: usize,
    mut batch: impl FnMut(usize) -> Result<Duration>,
) -> Result<(Vec<Duration>, usize)> {
    const LONG: Duration = Duration::from_millis(100);
    // The first run may have loaded code.
    let first = if first > LONG { first } else { batch(1)? };
    let runs = Duration::from_millis(5).as_nanos() / first.as_nanos().max(1);
    let runs = usize::try_from(runs).unwrap_or(most).clamp(1, most);
    let mut times = Vec::new();
    while again(first, runs, &times) {
        times.push(batch(runs)? / u32::try_from(runs).unwrap_or(1));
    }
    let count = times.len() * runs;
    Ok((times, count))
}

/// Returns true if a median needs more times.
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

/// Result of a check.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) elementwise: Option<f64>,
    pub(super) normwise: Option<f64>,
    /// Reason of a failure.
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
    // Key masks on a GPU are bytes in every dtype.
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
    // Rows that are not compared must have been written, too.
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

/// Returns a message if memory outside of the result was overwritten.
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

/// Returns a message about the first changed byte of a gap. Its offset counts from the end of the margin.
fn changed(run: &Run, gap: Range<usize>) -> Option<String> {
    let at = run.memory[gap.clone()]
        .par_iter()
        .position_first(|&byte| byte != FILL)?;
    let offset = (gap.start + at) as i64 - MARGIN as i64;
    Some(format!(
        "memory outside of the result was overwritten at byte {offset}"
    ))
}

/// Returns the median, if anything was timed.
pub(super) fn median(times: &[Duration]) -> Option<Duration> {
    let mut timed = times.to_vec();
    timed.sort_unstable();
    timed.get(timed.len() / 2).copied()
}
