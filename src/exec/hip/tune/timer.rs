//! Times of one candidate.

use std::time::Duration;

use super::bench::{Bench, MAX_LAUNCHES};
use crate::error::{Error, Result};
use crate::exec::select::Choice;
use crate::hip::{Operand, Replay, Stream, Work};

/// Target device time of one measurement.
const MEASUREMENT_TIME: Duration = Duration::from_millis(2);
/// Maximum device time of a call that is measured by graph replay. During longer calls, the host enqueues the next ones in time.
const MAX_REPLAYED_TIME: Duration = Duration::from_micros(150);

/// Enqueues `count` launches of a candidate.
struct Launches<'a, 'b> {
    bench: &'b mut Bench<'a>,
    candidate: Choice,
    count: usize,
}

impl Work for Launches<'_, '_> {
    type Error = Error;

    fn enqueue(&mut self, _: &Stream) -> Result<()> {
        self.bench.launch(self.candidate, self.count)
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        Vec::new()
    }
}

/// Measures a candidate, and stores its times.
pub(super) struct Timer {
    pub(super) candidate: Choice,
    /// Number of launches per measurement.
    count: usize,
    /// Replay of these launches. `None` if they are launched one by one.
    replay: Option<Replay>,
    /// Microseconds per launch.
    times: Vec<f64>,
}

impl Timer {
    /// Prepares a candidate, and determines the number of launches per measurement.
    ///
    /// # Errors
    ///
    /// Returns an error if the candidate fails to run.
    pub(super) fn new(bench: &mut Bench<'_>, candidate: Choice) -> Result<Self> {
        // Report a candidate that cannot be prepared. `submit` would silently use another one.
        for call in bench.launches.iter().flatten().take(2) {
            let prepared = bench.libraries.prepare(candidate, call, bench.kernels, false);
            prepared.map_err(|reason| Error::kernel("candidate", reason))?;
        }
        let mut timer = Self {
            candidate,
            count: 1,
            replay: None,
            times: Vec::new(),
        };
        // The first launch can load code, so measure twice.
        timer.measure(bench)?;
        timer.measure(bench)?;
        let once = Duration::from_secs_f64(timer.best() / 1e6);
        timer.count = (MEASUREMENT_TIME.as_secs_f64() / once.as_secs_f64().max(1e-6))
            .ceil()
            .min(MAX_LAUNCHES as f64) as usize;
        if once < MAX_REPLAYED_TIME {
            let stream = bench.stream.clone();
            let mut launches = Launches {
                bench,
                candidate,
                count: timer.count,
            };
            // If capture fails, measure launches one by one.
            timer.replay = Replay::new(&stream, &mut launches)?.ok();
        }
        timer.times.clear();
        Ok(timer)
    }

    pub(super) fn measure(&mut self, bench: &mut Bench<'_>) -> Result<()> {
        let stream = bench.stream.clone();
        let before = stream.record()?;
        match &mut self.replay {
            Some(replay) => replay.run()?,
            None => Launches {
                bench,
                candidate: self.candidate,
                count: self.count,
            }
            .enqueue(&stream)?,
        }
        let time = stream.record()?.since(&before)?;
        self.times.push(1e6 * time.as_secs_f64() / self.count as f64);
        Ok(())
    }

    /// Returns the shortest time in microseconds.
    pub(super) fn best(&self) -> f64 {
        self.times.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Returns the median time in microseconds.
    pub(super) fn median(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
    }
}
