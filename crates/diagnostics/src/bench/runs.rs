//! Timed runs of a session: end to end, on the device alone, and step by step.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::row::StepTime;
use super::times::median;
use hipvit::RunInput;
use hipvit::RunOptions;
use hipvit::error::{Error, Result};
use hipvit::graph::plan::{Plan, Step};
use hipvit::session::Session;
use hipvit::tensor::Input;
use hipvit::timing::{Phase, Timing};

/// Condition that ends the timed runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    /// Number of runs. `None` uses `time` and `at_least`.
    pub(super) runs: Option<usize>,
    /// Minimum total time.
    pub(super) time: Duration,
    /// Minimum number of runs.
    pub(super) at_least: usize,
}

impl Stop {
    fn enough(&self, runs: usize, elapsed: Duration) -> bool {
        match self.runs {
            Some(wanted) => runs >= wanted,
            None => runs >= self.at_least && elapsed >= self.time,
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// Measures the milliseconds of each run from pixels to outputs, and the number of runs. With several runs
/// `in_flight`, as many threads call the session. The time of a run is then its share of the time between
/// completions. The first runs are left out, because they find the device idle.
pub(super) fn end_to_end_runs(
    session: &Session,
    pixels: &[u8],
    in_flight: usize,
    stop: Stop,
) -> Result<(Vec<f64>, usize)> {
    let run = || {
        session
            .run_with(RunInput::Pixels(pixels), RunOptions::new())
            .map(drop)
    };
    let begin = Instant::now();
    if in_flight <= 1 {
        let mut times = Vec::new();
        while !stop.enough(times.len(), begin.elapsed()) {
            let start = Instant::now();
            run()?;
            times.push(milliseconds(start.elapsed()));
        }
        let runs = times.len();
        return Ok((times, runs));
    }
    let (completions, failed) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let started = AtomicUsize::new(0);
    // The first runs fill the pipeline.
    let enough = |runs: usize| stop.enough(runs.saturating_sub(in_flight), begin.elapsed());
    let work = || -> Result<()> {
        while !failed.load(Ordering::Relaxed) && !enough(started.fetch_add(1, Ordering::Relaxed)) {
            run().inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            completions.lock().push(begin.elapsed());
        }
        Ok(())
    };
    thread::scope(|scope| {
        let start = || {
            let thread = thread::Builder::new().spawn_scoped(scope, work);
            thread.map_err(|error| {
                failed.store(true, Ordering::Relaxed);
                Error::resource("threads", error)
            })
        };
        let threads: Vec<_> = (0..in_flight).map(|_| start()).collect::<Result<_>>()?;
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    let completions = completions.into_inner();
    let apart = completions.iter().zip(completions.iter().skip(in_flight));
    let times = apart.map(|(first, last)| milliseconds(last.saturating_sub(*first)) / in_flight as f64);
    Ok((times.collect(), completions.len()))
}

/// Measures the device's milliseconds of each run: of the computation, and of the copy of the pixels.
pub(super) fn device_runs(session: &Session, pixels: &[u8], stop: Stop) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut computed, mut uploads) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    while !stop.enough(computed.len(), begin.elapsed()) {
        let mut timing = Timing::default();
        session.run_with(RunInput::Pixels(pixels), RunOptions::new().timing(&mut timing))?;
        let of = |wanted: fn(Phase) -> bool| {
            let phases = timing.phases().filter(|(phase, _)| wanted(*phase));
            milliseconds(phases.map(|(_, time)| time).sum())
        };
        computed.push(of(|phase| matches!(phase, Phase::Step(_) | Phase::Replay)));
        uploads.push(of(|phase| phase == Phase::CopyIn));
    }
    Ok((computed, uploads))
}

/// Measures the median time of each step, launched individually.
pub(super) fn step_runs(
    session: &Session,
    plan: &Arc<Plan>,
    pixels: &[u8],
    stop: Stop,
) -> Result<Vec<StepTime>> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); plan.graph().nodes().len()];
    let (mut runs, begin) = (0, Instant::now());
    while !stop.enough(runs, begin.elapsed()) {
        let mut add = |step: &Step, time| times[step.node].push(milliseconds(time));
        session
            .executor()
            .run_steps(plan, Input::Pixels(pixels), &mut add)?;
        runs += 1;
    }
    let steps = plan.steps().iter().map(|step| {
        let node = plan.node(step);
        StepTime {
            name: node.name.clone(),
            op: node.op.to_string(),
            role: node.role,
            shape: plan.buffer(step.output()).shape.clone(),
            ms: median(&times[step.node]).unwrap_or(f64::NAN),
            flops: step.flops,
            bytes: step.bytes_read + step.bytes_written,
            roofline_ms: None,
        }
    });
    Ok(steps.collect())
}
