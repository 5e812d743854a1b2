//! Replays of captured graphs: when they are used, and how often they were.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Controls whether runs on a GPU replay captured graphs.
///
/// Some ROCm releases occasionally compute wrong results in replays, so replays are checked:
///
/// - A captured graph is used only if its first replay gives the same bytes as the individual steps.
/// - Logits and embeddings are overwritten before every replay. An incomplete replay then cannot return the results of an earlier run.
/// - For each captured graph, the 4th, 16th, 64th, 256th and then every 256th replay is followed by the individual steps on the same input.
///   The results are compared byte for byte.
///
/// A graph with parameters or states is compared before new values are written to them, by checksums of 64 bits. If another replay leaves logits or embeddings
/// unwritten, the run fails, since it cannot be repeated.
///
/// After the first difference every run submits its steps one by one, and [`Replays::fallback`] says why. Runs in flight are computed
/// again, so that no later result comes from a replay. The comparisons cost four runs, and then 0.4 % of the time.
///
/// The comparisons miss a replay that goes wrong once between two checks and still writes every result. Use [`GraphMode::Off`] if that risk
/// is not acceptable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphMode {
    /// Replay if the provider can, but not while steps are timed: a replay hides the times of its steps.
    #[default]
    Auto,
    /// Replay if the provider can. All steps are then one phase of the timing.
    On,
    /// Never replay.
    Off,
}

/// A [`GraphMode`] that can be changed between runs. Clones share the mode.
#[derive(Clone, Debug)]
pub struct GraphSwitch(Arc<AtomicU8>);

impl GraphSwitch {
    /// Returns a switch at `mode`.
    pub fn new(mode: GraphMode) -> Self {
        Self(Arc::new(AtomicU8::new(mode as u8)))
    }

    /// Changes the mode of runs that are submitted later.
    pub fn set(&self, mode: GraphMode) {
        self.0.store(mode as u8, Ordering::Relaxed);
    }

    /// Returns the mode.
    pub fn get(&self) -> GraphMode {
        let modes = [GraphMode::Auto, GraphMode::On, GraphMode::Off];
        modes[usize::from(self.0.load(Ordering::Relaxed))]
    }
}

/// Statistics of the runs on GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Replays {
    /// Runs that captured or replayed a graph.
    pub replayed_runs: u64,
    /// Runs whose steps were submitted one by one.
    pub eager_runs: u64,
    /// Replays whose results were compared with those of the individual steps.
    pub checked_runs: u64,
    /// Wrong replays, whose results were replaced by those of the individual steps.
    pub recomputed_runs: u64,
    /// Reason why graphs are no longer replayed. Set if a capture failed or a replay differed from the steps.
    pub fallback: Option<String>,
    /// Implementation of the all-reduce. Set for tensor parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_reduce: Option<String>,
    /// Reason why RCCL sums although the GPUs can access each other's memory. Set if that access could not be set up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_direct: Option<String>,
}

/// Formats one line: the numbers of runs, and the reason if graphs are no longer replayed.
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
