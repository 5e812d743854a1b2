//! Whether runs replay captured graphs, how many did, and when a replay is checked.

use std::fmt;

use crate::hip::{self, Replay};
use crate::tensor::DType;

/// Whether runs on a GPU replay captured graphs.
///
/// There are ROCm releases whose replays compute something else at times, so replays are checked:
///
/// - a captured graph is used only if its first replay gave the same bytes as the steps, one by one;
/// - before every replay the logits and embeddings are overwritten, so that a replay which does not write all of them cannot
///   hand out those of an earlier run;
/// - of the replays of each captured graph, the 4th, 16th, 64th, 256th and from then on every 256th are followed by the steps on
///   the same input, and compared byte for byte.
///
/// After the first difference every run submits its steps one by one, [`Replays::fallback`] says why, and what was in flight is
/// computed again: no result that is returned from then on comes from a replay. The comparisons cost four runs, and then 0.4 % of
/// the time. What they cannot find is a replay between two of them that goes wrong once and still writes every result;
/// [`GraphMode::Off`] is for whoever cannot accept that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphMode {
    /// Where the provider can, but not while steps are timed: inside a replay they cannot be told apart.
    #[default]
    Auto,
    /// Where the provider can. All steps are one phase of the timing then.
    On,
    /// Never.
    Off,
}

/// How runs were carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Replays {
    /// Runs that replayed a captured graph, with those that captured one.
    pub replayed_runs: u64,
    /// Runs whose steps were submitted one by one.
    pub eager_runs: u64,
    /// Replays whose results were compared with those of the steps.
    pub checked_runs: u64,
    /// Replays that were wrong, and whose results were replaced by those of the steps.
    pub recomputed_runs: u64,
    /// Why no graph is replayed any more, if capturing one failed or a replay differed from the steps.
    pub fallback: Option<String>,
    /// With tensor parallelism, what sums over the GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_reduce: Option<String>,
    /// Reason why RCCL sums although the GPUs can access each other's memory. Set if that access could not be set up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_direct: Option<String>,
}

/// One line: how many runs of either kind, and why no more are replayed.
impl fmt::Display for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<15} {:>10} runs replayed, {} step by step",
            "HIP graphs", self.replayed_runs, self.eager_runs
        )?;
        if let Some(reason) = &self.fallback {
            write!(f, ": {reason}")?;
        }
        match &self.all_reduce {
            Some(what) => write!(f, "\n{:<15} {what}", "all-reduce"),
            None => Ok(()),
        }
    }
}

/// From this one on, replays of a graph are checked at equal distances.
const CHECK_EVERY: u64 = 256;

/// What results are overwritten with before a replay: no number of f16, bf16 or f32, and not the one that GPUs make of
/// invalid operations.
pub(super) const UNWRITTEN: u8 = 0xff;

/// A captured graph whose first replay was right.
#[derive(Debug)]
pub(super) struct Captured {
    replay: Replay,
    runs: u64,
    /// The last of the runs that was compared with the steps.
    checked: u64,
}

impl Captured {
    pub(super) fn new(replay: Replay) -> Self {
        Self {
            replay,
            runs: 0,
            checked: 0,
        }
    }

    /// Submits a replay; its number, from 1.
    pub(super) fn run(&mut self) -> hip::Result<u64> {
        self.replay.run()?;
        self.runs += 1;
        Ok(self.runs)
    }

    /// Notes that replay number `run` was right.
    pub(super) fn passed(&mut self, run: u64) {
        self.checked = run;
    }

    /// How many replays before number `run` nothing was compared with.
    pub(super) fn unchecked_before(&self, run: u64) -> u64 {
        (run - self.checked).saturating_sub(1)
    }
}

/// Whether replay number `run` of a graph, from 1, is compared with the steps: soon at first, since what is wrong from the
/// beginning is found early then, and seldom later, at a cost of 1 in [`CHECK_EVERY`].
pub(super) fn is_due(run: u64) -> bool {
    if run < CHECK_EVERY {
        run > 1 && run.is_power_of_two() && run.trailing_zeros().is_multiple_of(2)
    } else {
        run.is_multiple_of(CHECK_EVERY)
    }
}

/// Whether a value of the results is what they were overwritten with.
pub(super) fn is_unwritten(bytes: &[u8], dtype: DType) -> bool {
    let mut values = bytes.chunks_exact(dtype.size());
    values.any(|value| value.iter().all(|&byte| byte == UNWRITTEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replays_are_checked_at_the_documented_numbers() {
        let due: Vec<u64> = (1..=1024).filter(|&run| is_due(run)).collect();
        assert_eq!(due, [4, 16, 64, 256, 512, 768, 1024]);
    }

    #[test]
    fn one_value_that_was_not_written_is_found() {
        let mut bytes: Vec<u8> = [1.0f32, -f32::NAN, f32::NEG_INFINITY]
            .iter()
            .flat_map(|v| v.to_ne_bytes())
            .collect();
        assert!(!is_unwritten(&bytes, DType::F32));
        bytes[4..8].fill(UNWRITTEN);
        assert!(is_unwritten(&bytes, DType::F32));
        // Neighbouring halves that only look like one.
        assert!(!is_unwritten(&[0, 0xff, 0xff, 0], DType::F16));
        assert!(is_unwritten(&[0, 0, 0xff, 0xff], DType::BF16));
    }
}
