//! Whether a run computed what the oracle says, and touched nothing else.

use std::ops::Range;
use std::time::Duration;

use rayon::prelude::*;

use super::cases::Case;
use super::expected::Expected;
use super::operands::{Operands, stored};
use super::report::Worst;
use crate::exec::unpack;
use crate::graph::plan::Plan;
use crate::reference::{Mismatch, check_close};
use crate::tensor::DType;

/// What memory is full of before a run: no number in any of the dtypes.
pub(super) const FILL: u8 = 0xff;
/// Bytes before and after everything that a run may know of.
pub(super) const MARGIN: usize = 4096;

/// What a run left behind.
pub(super) struct Run {
    /// All of it, the margins included.
    pub(super) memory: Vec<u8>,
    /// What lies where in it; everything else is to be as it was.
    pub(super) regions: Vec<(Range<usize>, Content)>,
    /// Bytes that had to be read and written.
    pub(super) bytes: u64,
    /// The first run warmed up.
    pub(super) times: Vec<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Of this index, which is not to change.
    Operand(usize),
    Result,
}

/// The regions of a plan's arena behind the margin. The first steps put the operands `placed` there, the last computes the
/// result.
pub(super) fn regions(plan: &Plan, placed: &[usize]) -> Vec<(Range<usize>, Content)> {
    let contents = placed
        .iter()
        .map(|&index| Content::Operand(index))
        .chain([Content::Result]);
    let range = |offset: usize, bytes: usize| MARGIN + offset..MARGIN + offset + bytes;
    let mut regions: Vec<_> = plan
        .buffers()
        .iter()
        .map(|buffer| range(buffer.offset, buffer.bytes))
        .zip(contents)
        .collect();
    // An operand whose place the result took is gone.
    if let Some((result, _)) = regions.last().cloned() {
        regions.retain(|(range, content)| *content == Content::Result || range.start != result.start);
    }
    regions
}

/// Whether the times are enough for a median.
pub(super) fn again(times: &[Duration]) -> bool {
    let Some((first, timed)) = times.split_first() else {
        return true;
    };
    let total: Duration = timed.iter().sum();
    match timed.len() {
        0 => true,
        1.. if *first > Duration::from_millis(100) => false,
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
    compare(case, &unpack(result, dtype), expected, &mut verdict);
    if verdict.failure.is_none() {
        verdict.failure = overwritten(operands, run, dtype);
    }
    verdict
}

fn compare(case: &Case, values: &[f32], expected: &Expected, verdict: &mut Verdict) {
    let count = expected.rows.len().max(1);
    let channels = expected.values.len() / count;
    // Also rows that the oracle did not compute must have been written.
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
            verdict.failure = Some("is too far from the oracle".into());
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

/// What was changed that a run has no business with.
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

/// The first byte of a gap that is not as it was, counted from the first byte behind the margin.
fn changed(run: &Run, gap: Range<usize>) -> Option<String> {
    let at = run.memory[gap.clone()]
        .par_iter()
        .position_first(|&byte| byte != FILL)?;
    let offset = (gap.start + at) as i64 - MARGIN as i64;
    Some(format!(
        "memory that is not the result's was overwritten at byte {offset}"
    ))
}

/// The median of what is timed, if anything was.
pub(super) fn median(times: &[Duration]) -> Option<Duration> {
    let mut timed = times.get(1..)?.to_vec();
    timed.sort_unstable();
    timed.get(timed.len() / 2).copied()
}
