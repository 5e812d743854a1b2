//! Times models: `hipvit bench`. A [`Spec`] says what a row measures. [`Bench`] measures rows in interleaved
//! repetitions. Each row becomes a [`Row`].
//!
//! A repetition of a row warms up, then times runs end to end, from u8 pixels in host memory to f32 logits in
//! host memory. On a GPU it then times as many runs by events around the computation alone, which a captured
//! graph replays. Memory, power and the times of the steps are measured once, in the first repetition.

mod device;
mod environment;
mod ladder;
mod power;
mod row;
mod rung;
mod runs;
mod scaling;
mod spec;
mod times;

pub use environment::{DeviceInfo, Environment};
pub use ladder::ladder;
pub use power::Power;
pub use row::{CopyIn, DeviceShare, Memory, Peak, Row, RowOptions, SCHEMA, Scaling, StepTime};
pub use rung::Rung;
pub use spec::Spec;
pub use times::{Times, median, noise, percentile};

use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use ndarray::Array2;

use self::device::BenchDevice;
use self::power::Sustained;
use self::runs::{Stop, device_runs, end_to_end_runs, step_runs};
use crate::validate::host_memory;
use hipvit::error::{Error, Result};
use hipvit::exec::GraphMode;
use hipvit::graph::Optimizations;
use hipvit::session::{Device, Session};
use hipvit::tensor::DType;
use hipvit::{RunInput, RunOptions, hip};

/// Settings of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Minimum number of runs before any is timed. On a GPU the second run captures a graph.
    pub warm_up_runs: usize,
    /// Minimum total time of the warm-up runs.
    pub warm_up_time: Duration,
    /// Number of timed runs per repetition; `None` uses [`time`](Self::time).
    pub runs: Option<usize>,
    /// Duration of a repetition if [`runs`](Self::runs) is `None`.
    pub time: Duration,
    /// Number of repetitions.
    pub repeat: usize,
    /// Duration of the sustained run that samples power; 0 samples none.
    pub power: Duration,
    /// True to time each step.
    pub steps: bool,
    /// True to measure the peaks of the devices.
    pub peaks: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            warm_up_runs: 2,
            warm_up_time: Duration::from_millis(200),
            runs: None,
            time: Duration::from_secs(1),
            repeat: 1,
            power: Duration::from_secs(1),
            steps: false,
            peaks: true,
        }
    }
}

/// Minimum number of timed runs if a duration limits them.
const FEWEST_RUNS: usize = 5;

/// Measures rows.
#[derive(Debug)]
pub struct Bench {
    settings: Settings,
    sessions: Vec<Loaded>,
    devices: Vec<(Device, BenchDevice)>,
    /// Pixels of the largest batch so far.
    pixels: Vec<u8>,
}

/// A session and its memory in the pool of its device.
#[derive(Debug)]
struct Loaded {
    spec: Spec,
    session: Session,
    bytes: i64,
}

/// Measurements of a row so far.
#[derive(Debug)]
struct Measured {
    row: Row,
    end_to_end: Vec<Vec<f64>>,
    device_only: Vec<Vec<f64>>,
    uploads: Vec<f64>,
    /// Bytes that all steps move.
    bytes: u64,
    input_bytes: usize,
    outputs: Option<Array2<f32>>,
    /// Number of timed images of each replica.
    shares: Vec<u64>,
}

impl Bench {
    /// Creates a bench with these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            sessions: Vec::new(),
            devices: Vec::new(),
            pixels: Vec::new(),
        }
    }

    /// Measures a row for each of `specs`, in their order. Each repetition runs smaller batches first. The
    /// memory that a session takes from the pool is then what the batch needs. `progress` is called before
    /// each measurement.
    ///
    /// A row that cannot be measured has an [error](Row::error). The other rows are still measured.
    pub fn run(&mut self, specs: &[Spec], progress: &mut dyn FnMut(&Spec)) -> Vec<Row> {
        let mut measured: Vec<Measured> = specs.iter().map(Measured::new).collect();
        let order = order(specs);
        for repetition in 0..self.settings.repeat.max(1) {
            for &index in &order {
                let (spec, measured) = (&specs[index], &mut measured[index]);
                progress(spec);
                if measured.row.error.is_some() {
                    continue;
                }
                let dtypes = || specs.iter().filter(|s| s.device == spec.device).map(|s| s.dtype);
                let result = self.devices(spec.device, dtypes()).and_then(|()| {
                    let largest = largest_batch(specs, spec);
                    let result = self.measure(spec, largest, measured, repetition);
                    match result {
                        // The other processes of a session keep their sessions.
                        Err(Error::Hip(hip::Error::OutOfMemory { .. }))
                            if spec.world.is_none() && self.forget_others(spec) =>
                        {
                            // Retry: sessions of other rows may have held the missing memory.
                            self.measure(spec, largest, measured, repetition)
                        }
                        result => result,
                    }
                });
                if let Err(error) = result {
                    measured.row.error = Some(error.to_string());
                }
            }
        }
        compare_outputs(specs, &mut measured);
        let finish = |(spec, measured): (&Spec, Measured)| self.finish(spec, measured);
        let mut rows: Vec<Row> = specs.iter().zip(measured).map(finish).collect();
        self.check_peaks(specs, &mut rows);
        scaling::compare(specs, &mut rows);
        rows
    }

    /// Takes part in rank 0's measurements of the same `specs`, which are for [several
    /// processes](Spec::world). All other ranks call it.
    ///
    /// # Errors
    ///
    /// Errors of loading a model and of [`Session::follow`].
    pub fn follow(specs: &[Spec]) -> Result<()> {
        thread::scope(|scope| {
            let mut followed: Vec<&Spec> = Vec::new();
            let mut threads = Vec::new();
            // Rank 0 keeps each session until all rows are measured.
            for spec in order(specs).into_iter().map(|index| &specs[index]) {
                if followed.iter().any(|other| other.shares_session(spec)) {
                    continue;
                }
                followed.push(spec);
                let session = load(spec, largest_batch(specs, spec))?;
                threads.push(scope.spawn(move || session.follow()));
            }
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => resume_unwind(panic),
            });
            ended.collect()
        })
    }

    /// Opens the device and measures its peaks on first use.
    fn devices(&mut self, device: Device, dtypes: impl Iterator<Item = DType>) -> Result<()> {
        if self.devices.iter().all(|(known, _)| *known != device) {
            let opened = BenchDevice::open(device, dtypes, self.settings.peaks)?;
            self.devices.push((device, opened));
        }
        Ok(())
    }

    fn device(&self, device: Device) -> Option<&BenchDevice> {
        let known = self.devices.iter().find(|(known, _)| *known == device);
        known.map(|(_, device)| device)
    }

    /// Drops the sessions that `spec` does not use. Returns true if there were any.
    fn forget_others(&mut self, spec: &Spec) -> bool {
        let before = self.sessions.len();
        self.sessions.retain(|loaded| loaded.spec.shares_session(spec));
        if let Some(gpu) = self.device(spec.device).and_then(|device| device.gpu.as_ref()) {
            // The next use of the GPU reports a failure.
            let _ = gpu.trim();
        }
        self.sessions.len() < before
    }

    /// Returns the index of the session for `spec`, whose batches have up to `largest` images.
    fn session(&mut self, spec: &Spec, largest: usize) -> Result<usize> {
        let known = self
            .sessions
            .iter()
            .position(|loaded| loaded.spec.shares_session(spec));
        if let Some(index) = known {
            return Ok(index);
        }
        let before = self.live(spec.device);
        let session = load(spec, largest)?;
        self.sessions.push(Loaded {
            spec: spec.clone(),
            session,
            bytes: self.live(spec.device) - before,
        });
        Ok(self.sessions.len() - 1)
    }

    /// Returns the bytes in use of the device's pool.
    fn live(&self, device: Device) -> i64 {
        let gpu = self.device(device).and_then(|device| device.gpu.as_ref());
        gpu.map_or(0, |gpu| gpu.pool_stats().live as i64)
    }

    /// Measures one repetition of a row.
    fn measure(
        &mut self,
        spec: &Spec,
        largest: usize,
        measured: &mut Measured,
        repetition: usize,
    ) -> Result<()> {
        let index = self.session(spec, largest)?;
        let before = self.live(spec.device);
        let result = self.measure_session(index, spec, measured, repetition);
        self.sessions[index].bytes += self.live(spec.device) - before;
        result?;
        if repetition == 0 {
            measured.row.memory = self.memory(index, spec)?;
        }
        Ok(())
    }

    fn measure_session(
        &mut self,
        index: usize,
        spec: &Spec,
        measured: &mut Measured,
        repetition: usize,
    ) -> Result<()> {
        let settings = self.settings;
        let batch = spec.batch;
        let plan = self.sessions[index].session.plan(batch)?;
        let image = plan
            .graph()
            .value(plan.graph().input())
            .shape
            .iter()
            .product::<usize>();
        let on_host = match spec.device {
            Device::Cpu => plan.arena_bytes(),
            _ => 0,
        };
        fill(&mut self.pixels, batch, image, on_host)?;
        let pixels = &self.pixels[..batch * image];
        let session = &mut self.sessions[index].session;

        let stop = Stop {
            runs: settings.runs,
            time: settings.time,
            at_least: FEWEST_RUNS,
        };
        let warm_up = Stop {
            runs: None,
            time: settings.warm_up_time,
            at_least: settings.warm_up_runs.max(1),
        };
        if repetition == 0 {
            let outputs = session.run_with(RunInput::Pixels(pixels), RunOptions::new())?;
            measured.outputs = Some(match outputs.logits() {
                Some(logits) => logits.to_owned(),
                None => outputs.embeddings().to_owned(),
            });
            measured.bytes = plan.steps().iter().map(|s| s.bytes_read + s.bytes_written).sum();
            measured.input_bytes = pixels.len();
            measured.row.model = session.name().to_owned();
            measured.row.threads = session.threads();
            measured.row.flops_per_image = Some(plan.flops() as f64 / batch as f64);
        }
        let in_flight = spec.in_flight * session.degrees().data;
        end_to_end_runs(session, pixels, in_flight, warm_up)?;
        let before = session.images_by_replica();
        let (times, _) = end_to_end_runs(session, pixels, in_flight, stop)?;
        measured.end_to_end.push(times);
        scaling::add_shares(&mut measured.shares, &before, &session.images_by_replica());
        // With several GPUs, their events would belong to different runs.
        if spec.device != Device::Cpu && spec.device_count() == 1 {
            if spec.execution.hip_graphs != GraphMode::Off {
                // A replay is timed as a whole.
                session.set_hip_graphs(GraphMode::On)?;
            }
            let runs = device_runs(session, pixels, stop);
            session.set_hip_graphs(spec.execution.hip_graphs)?;
            let (computed, uploads) = runs?;
            measured.device_only.push(computed);
            measured.uploads.extend(uploads);
        }
        if repetition > 0 {
            return Ok(());
        }
        if settings.steps {
            session.set_hip_graphs(GraphMode::Off)?;
            let steps = step_runs(
                session,
                &plan,
                pixels,
                Stop {
                    time: settings.time / 2,
                    ..stop
                },
            );
            session.set_hip_graphs(spec.execution.hip_graphs)?;
            measured.row.steps = Some(steps?);
        }
        let flops = measured.row.flops_per_image.unwrap_or(0.0);
        let device = self.devices.iter().find(|(known, _)| *known == spec.device);
        if let Some(monitor) = device.and_then(|(_, device)| device.monitor.as_ref())
            && !settings.power.is_zero()
            // The sensors belong to one GPU.
            && spec.device_count() == 1
        {
            let session = &self.sessions[index].session;
            let Sustained { power, link } = power::sustained(monitor, flops, || {
                let long = Stop {
                    runs: None,
                    time: settings.power,
                    at_least: 1,
                };
                let (_, runs) = end_to_end_runs(session, pixels, spec.in_flight, long)?;
                Ok(runs * batch)
            })?;
            measured.row.power = power;
            measured.row.copy_in.link_peak_gbps = link.map(|rate| rate / 1e9);
        }
        let replays = self.sessions[index].session.hip_graphs();
        measured.row.options.graphs_fallback = replays.and_then(|replays| replays.fallback);
        Ok(())
    }

    fn memory(&self, index: usize, spec: &Spec) -> Result<Memory> {
        let Loaded { session, bytes, .. } = &self.sessions[index];
        let plan = session.plan(spec.batch)?;
        let mut memory = Memory {
            activations_bytes: Some(plan.arena_bytes() as u64),
            host_peak_bytes: hip::peak_rss(),
            ..Memory::default()
        };
        if let Some(executor) = session.executor().hip() {
            let stats = executor.device().pool_stats();
            memory.peak_bytes = u64::try_from(*bytes).ok();
            memory.weights_bytes = Some(executor.weight_bytes() as u64);
            memory.pool_efficiency = (stats.held > 0).then(|| stats.requested as f64 / stats.held as f64);
            memory.fragmentation = Some(stats.fragmentation());
        }
        Ok(memory)
    }

    /// Computes a row from its measurements.
    fn finish(&self, spec: &Spec, measured: Measured) -> Row {
        let Measured {
            mut row,
            end_to_end,
            device_only,
            uploads,
            bytes,
            input_bytes,
            shares,
            ..
        } = measured;
        if let Some(device) = self.device(spec.device) {
            row.device = device.info.clone();
            row.environment = device.environment.clone();
            row.peak = device.peak(spec.dtype);
            let idle_link = || device.link.map(|rate| rate / 1e9);
            row.copy_in.link_peak_gbps = row.copy_in.link_peak_gbps.or_else(idle_link);
        }
        if row.error.is_some() {
            return row;
        }
        row.end_to_end = Times::of(&end_to_end.concat(), spec.batch);
        row.device_only = Times::of(&device_only.concat(), spec.batch);
        row.repeats = end_to_end.iter().filter_map(|times| median(times)).collect();
        row.noise = noise(&row.repeats);
        let seconds = row.seconds_of_device(spec);
        row.gbps = seconds.map(|seconds| bytes as f64 / seconds / 1e9);
        if let Some(Loaded { session, .. }) = self
            .sessions
            .iter()
            .find(|loaded| loaded.spec.shares_session(spec))
            && spec.device_count() > 1
        {
            row.device.name = scaling::name(session);
            row.devices = scaling::devices(session, &shares, row.end_to_end.as_ref());
        }
        row.copy_in.gbps = median(&uploads).map(|ms| input_bytes as f64 / ms / 1e6);
        row.compare_with_peak(spec);
        row
    }

    /// Measures the peaks of devices that a row exceeds again, and notes why a row still exceeds them.
    fn check_peaks(&mut self, specs: &[Spec], rows: &mut [Row]) {
        for (spec, row) in specs.iter().zip(&mut *rows) {
            let known = self.devices.iter_mut().find(|(known, _)| *known == spec.device);
            if let Some((_, device)) = known
                && device.info.kind != "emulated"
                && row.mfu_measured.is_some_and(|share| share > 1.0)
                && row.peak.measured_tflops == device.peak(spec.dtype).measured_tflops
            {
                // The next use of the GPU reports a failure.
                let _ = device.measure_peak_again(spec.dtype);
            }
        }
        for (spec, row) in specs.iter().zip(rows) {
            if let Some(device) = self.device(spec.device) {
                row.peak = device.peak(spec.dtype);
                row.compare_with_peak(spec);
            }
            let session = self
                .sessions
                .iter()
                .find(|loaded| loaded.spec.shares_session(spec));
            row.mfu_note = row.mfu_note(session.map(|loaded| loaded.session.info()));
        }
    }
}

/// Orders rows by batch size, so that the memory that a session takes from the pool is what the batch needs.
fn order(specs: &[Spec]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by_key(|&index| specs[index].batch);
    order
}

/// Returns the largest batch of the rows that share the session of `spec`.
fn largest_batch(specs: &[Spec], spec: &Spec) -> usize {
    let shared = specs.iter().filter(|other| other.shares_session(spec));
    shared.map(|other| other.batch).max().unwrap_or(spec.batch)
}

fn load(spec: &Spec, batch: usize) -> Result<Session> {
    let builder = spec.builder().batch(batch);
    match &spec.model {
        Some(path) => builder.load(path),
        None => builder.tinyvit32(),
    }
}

impl Measured {
    fn new(spec: &Spec) -> Self {
        let optimizations = spec.optimizations;
        let row = Row {
            schema: SCHEMA,
            engine: "hipvit",
            engine_version: env!("CARGO_PKG_VERSION"),
            model: spec.model_name(),
            batch: spec.batch,
            dtype: spec.dtype,
            threads: 0,
            options: RowOptions {
                graphs: match spec.execution.hip_graphs {
                    GraphMode::On => "on",
                    GraphMode::Off => "off",
                    _ => "auto",
                }
                .into(),
                reproducible: spec.execution.reproducible,
                in_flight: spec.in_flight,
                parallel: (spec.device_count() > 1).then(|| spec.execution.parallel.to_string()),
                image_size: spec.execution.image_size.map(|size| size.0),
                rung: spec.rung.map(Rung::name),
                optimizations: (optimizations != Optimizations::default()).then_some(optimizations),
                ..RowOptions::default()
            },
            device: DeviceInfo {
                kind: if spec.device == Device::Cpu { "cpu" } else { "rocm" },
                name: spec.devices().to_string(),
                ..DeviceInfo::default()
            },
            devices: Vec::new(),
            environment: Environment::default(),
            end_to_end: None,
            scaling: None,
            device_only: None,
            flops_per_image: None,
            peak: Peak::default(),
            mfu_datasheet: None,
            mfu_measured: None,
            mfu_note: None,
            gbps: None,
            memory: Memory::default(),
            power: Power::default(),
            copy_in: CopyIn::default(),
            steps: None,
            repeats: Vec::new(),
            noise: None,
            error: None,
        };
        Self {
            row,
            end_to_end: Vec::new(),
            device_only: Vec::new(),
            uploads: Vec::new(),
            bytes: 0,
            input_bytes: 0,
            outputs: None,
            shares: Vec::new(),
        }
    }
}

/// Computes the difference of each rung's outputs from the first rung's.
fn compare_outputs(specs: &[Spec], measured: &mut [Measured]) {
    let mut first: Option<Array2<f32>> = None;
    for (spec, measured) in specs.iter().zip(measured) {
        if spec.rung == Some(Rung::Naive) {
            first = measured.outputs.clone();
        }
        if let (Some(_), Some(first), Some(outputs)) = (spec.rung, &first, &measured.outputs) {
            let largest = first.iter().fold(0f32, |most, x| most.max(x.abs()));
            let difference = (outputs - first).iter().fold(0f32, |most, x| most.max(x.abs()));
            measured.row.options.output_difference = Some(f64::from(difference / largest));
        }
    }
}

/// Fills `pixels` for `batch` images of `image` bytes, if the host has memory for them and for `more` bytes.
fn fill(pixels: &mut Vec<u8>, batch: usize, image: usize, more: usize) -> Result<()> {
    let len = batch.checked_mul(image);
    let len =
        len.ok_or_else(|| Error::argument("batch", format!("{batch} images exceed the address space")))?;
    let needed = len
        .saturating_sub(pixels.len())
        .saturating_add(len)
        .saturating_add(more);
    let free = host_memory();
    if needed > free {
        let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
        let (needed, free) = (gib(needed), gib(free));
        let reason = format!("{batch} images need {needed:.1} GiB of host memory, {free:.1} GiB are free");
        return Err(Error::argument("batch", reason));
    }
    if len > pixels.len() {
        // Pseudo-random bytes: a multiplicative sequence modulo a prime.
        let random = std::iter::successors(Some(1u32), |x| Some(x * 48_271 % 65_521));
        pixels.clear();
        pixels.extend(random.take(len).map(|x| x as u8));
    }
    Ok(())
}
