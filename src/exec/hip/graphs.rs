//! The captured graphs of an executor: checks of replays, and statistics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::exec::replays::{GraphMode, GraphSwitch, Replays};
use crate::hip::{self, Replay};
use crate::tensor::DType;

/// Form in which the steps of a run were submitted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Submitted {
    /// Submitted one by one. Includes the run that captures a graph.
    Steps,
    /// Replay of a captured graph. The number of the replay starts at 1.
    Replay(u64),
}

/// Use of captured graphs by one executor.
pub(super) struct GraphReplays {
    switch: GraphSwitch,
    /// Reason why graphs are no longer replayed. The stages of a pipeline share it.
    fallback: Arc<OnceLock<String>>,
    replayed: AtomicU64,
    eager: AtomicU64,
    checked: AtomicU64,
    recomputed: AtomicU64,
}

impl GraphReplays {
    pub(super) fn new(switch: GraphSwitch) -> Self {
        Self {
            switch,
            fallback: Arc::default(),
            replayed: AtomicU64::new(0),
            eager: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            recomputed: AtomicU64::new(0),
        }
    }

    /// Shares `switch` and `fallback` with other executors, so that all fall back together.
    pub(super) fn share(&mut self, switch: GraphSwitch, fallback: Arc<OnceLock<String>>) {
        self.switch = switch;
        self.fallback = fallback;
    }

    /// Returns true if a run should replay a captured graph. A replay would hide the times of a `timed` run's steps.
    pub(super) fn is_wanted(&self, timed: bool) -> bool {
        let wanted = match self.switch.get() {
            GraphMode::Auto => !timed,
            GraphMode::On => true,
            GraphMode::Off => false,
        };
        wanted && !self.has_fallen_back()
    }

    /// Returns true if graphs are no longer replayed.
    pub(super) fn has_fallen_back(&self) -> bool {
        self.fallback.get().is_some()
    }

    /// Disables replays for good, for this reason.
    pub(super) fn fall_back(&self, reason: impl FnOnce() -> String) {
        self.fallback.get_or_init(reason);
    }

    pub(super) fn count_replayed(&self) {
        self.replayed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_eager(&self) {
        self.eager.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_checked(&self) {
        self.checked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_recomputed(&self) {
        self.recomputed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn statistics(&self) -> Replays {
        Replays {
            replayed_runs: self.replayed.load(Ordering::Relaxed),
            eager_runs: self.eager.load(Ordering::Relaxed),
            checked_runs: self.checked.load(Ordering::Relaxed),
            recomputed_runs: self.recomputed.load(Ordering::Relaxed),
            fallback: self.fallback.get().cloned(),
            all_reduce: None,
            no_direct: None,
        }
    }
}

/// Distance between checked replays of a graph, after the first checks.
const CHECK_EVERY: u64 = 256;

/// Byte that results are filled with before a replay. Filled with it, f16, bf16 and f32 are a NaN that GPUs do not produce.
pub(super) const UNWRITTEN: u8 = 0xff;

/// A captured graph whose first replay was right.
#[derive(Debug)]
pub(super) struct Captured {
    replay: Replay,
    runs: u64,
    /// Number of the last replay that was checked.
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

    /// Submits a replay. Returns its number, from 1.
    pub(super) fn run(&mut self) -> hip::Result<u64> {
        self.replay.run()?;
        self.runs += 1;
        Ok(self.runs)
    }

    /// Returns the number of replays so far.
    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    /// Records that replay number `run` was right.
    pub(super) fn passed(&mut self, run: u64) {
        self.checked = run;
    }

    /// Returns the number of replays between the last checked one and `run`.
    pub(super) fn unchecked_before(&self, run: u64) -> u64 {
        (run - self.checked).saturating_sub(1)
    }
}

/// Returns true if replay number `run` of a graph, counted from 1, is compared with the steps.
///
/// The first checks are dense, to find systematic errors early. Later, 1 in [`CHECK_EVERY`] replays is checked.
pub(super) fn is_due(run: u64) -> bool {
    if run < CHECK_EVERY {
        run > 1 && run.is_power_of_two() && run.trailing_zeros().is_multiple_of(2)
    } else {
        run.is_multiple_of(CHECK_EVERY)
    }
}

/// Returns true if an element of the results still has the fill value.
pub(super) fn is_unwritten(bytes: &[u8], dtype: DType) -> bool {
    // Without an early end, so that the compiler uses vectors.
    let any = |found: bool, unwritten: bool| found | unwritten;
    match dtype.size() {
        2 => {
            let (values, _) = bytes.as_chunks();
            values
                .iter()
                .map(|&value| u16::from_ne_bytes(value) == u16::MAX)
                .fold(false, any)
        }
        size => {
            let mut values = bytes.chunks_exact(size);
            values.any(|value| value.iter().all(|&byte| byte == UNWRITTEN))
        }
    }
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
        // The neighbouring halves of two elements only look like the fill value.
        assert!(!is_unwritten(&[0, 0xff, 0xff, 0], DType::F16));
        assert!(is_unwritten(&[0, 0, 0xff, 0xff], DType::BF16));
    }
}
