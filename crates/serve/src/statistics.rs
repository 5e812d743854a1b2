//! Counts and durations of a model's requests and batches, with the meanings of Triton's statistics extension.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;

/// Number and sum of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct TimeSum {
    pub(super) count: u64,
    pub(super) ns: u64,
}

impl TimeSum {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.ns = self
            .ns
            .saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Parts of the time of one image or text, or of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Waiting for a decoder thread and for a batch.
    pub(crate) queue: Duration,
    /// Decoding and resizing an image, or tokenizing a text.
    pub(crate) input: Duration,
    /// Running the batch.
    pub(crate) infer: Duration,
    /// Copying results from the device, if measured, and writing the outputs.
    pub(crate) output: Duration,
}

impl Parts {
    /// Returns the longer of each part, because the images of a request are processed at the same time.
    pub(super) fn longest(self, other: Self) -> Self {
        Self {
            queue: self.queue.max(other.queue),
            input: self.input.max(other.input),
            infer: self.infer.max(other.infer),
            output: self.output.max(other.output),
        }
    }
}

/// Times of a batch on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunTimes {
    /// Copies to the device and back.
    pub(crate) copy: Duration,
    /// Copies back from the device; part of `copy`.
    pub(crate) copy_out: Duration,
    pub(crate) compute: Duration,
}

/// Durations of requests, in the order and with the names of Triton's `inference_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct InferTimes {
    pub(super) success: TimeSum,
    pub(super) fail: TimeSum,
    pub(super) queue: TimeSum,
    pub(super) compute_input: TimeSum,
    pub(super) compute_infer: TimeSum,
    pub(super) compute_output: TimeSum,
    /// Always 0: the server caches no responses.
    pub(super) cache_hit: TimeSum,
    /// Always 0: the server caches no responses.
    pub(super) cache_miss: TimeSum,
}

/// Durations of batches of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct BatchTimes {
    pub(super) compute_input: TimeSum,
    pub(super) compute_infer: TimeSum,
    pub(super) compute_output: TimeSum,
}

/// The statistics of one version of a model at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Milliseconds from the Unix epoch to the last request; 0 before the first.
    pub(super) last_inference: u64,
    /// Number of images and texts that were run.
    pub(super) inferences: u64,
    /// Number of batches that were run.
    pub(super) executions: u64,
    pub(super) times: InferTimes,
    /// Times by batch size. There are at most as many entries as the maximum batch size.
    pub(super) batches: BTreeMap<usize, BatchTimes>,
}

/// Statistics of one version of a model since it was loaded.
#[derive(Debug, Default)]
pub(crate) struct Statistics(Mutex<Counts>);

impl Statistics {
    /// Counts a batch that has run.
    pub(super) fn batch(&self, size: usize, parts: Parts) {
        let mut counts = self.0.lock();
        counts.inferences += size as u64;
        counts.executions += 1;
        let times = counts.batches.entry(size).or_default();
        times.compute_input.add(parts.input);
        times.compute_infer.add(parts.infer);
        times.compute_output.add(parts.output);
    }

    /// Counts an answered request that took `total`.
    pub(super) fn success(&self, total: Duration, parts: Parts) {
        let mut counts = self.0.lock();
        counts.last_inference = now();
        let times = &mut counts.times;
        times.success.add(total);
        times.queue.add(parts.queue);
        times.compute_input.add(parts.input);
        times.compute_infer.add(parts.infer);
        times.compute_output.add(parts.output);
    }

    /// Counts a request that failed or whose client left, after `total`.
    pub(super) fn fail(&self, total: Duration) {
        let mut counts = self.0.lock();
        counts.last_inference = now();
        counts.times.fail.add(total);
    }

    pub(super) fn counts(&self) -> Counts {
        self.0.lock().clone()
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_batches_are_counted_apart() {
        let statistics = Statistics::default();
        let ms = Duration::from_millis;
        let parts = |queue, input| Parts {
            queue: ms(queue),
            input: ms(input),
            infer: ms(5),
            output: ms(1),
        };
        statistics.batch(2, parts(0, 3));
        statistics.batch(2, parts(0, 4));
        statistics.batch(1, parts(0, 1));
        statistics.success(ms(20), parts(7, 3).longest(parts(2, 4)));
        statistics.fail(ms(2));
        let counts = statistics.counts();
        assert_eq!((counts.inferences, counts.executions), (5, 3));
        let sum = |count, ms: u64| TimeSum {
            count,
            ns: ms * 1_000_000,
        };
        assert_eq!(counts.times.success, sum(1, 20));
        assert_eq!(counts.times.fail, sum(1, 2));
        assert_eq!(counts.times.queue, sum(1, 7));
        assert_eq!(counts.times.compute_input, sum(1, 4));
        assert_eq!(counts.times.cache_hit, sum(0, 0));
        assert_eq!(counts.batches[&2].compute_input, sum(2, 7));
        assert_eq!(counts.batches[&1].compute_infer, sum(1, 5));
        assert!(counts.last_inference > 1_700_000_000_000);
    }
}
