//! Measures the candidates for the linear layers of a plan.

use std::time::Duration;

use super::libraries::Libraries;
use super::lower::{Call, LinearCall};
use super::regions::Regions;
use super::{HipExecutor, Kernels};
use crate::error::{Error, Result};
use crate::exec::select::{LinearKernel, LinearShape, Store};
use crate::graph::plan::Plan;
use crate::hip::{DeviceBuffer, Operand, PinnedBuffer, Replay, Stream, Work};

/// Weights are taken from so much memory in turn, more than any cache has, since a model's layers each have their own.
const WEIGHT_BYTES: usize = 192 << 20;
/// The device's time of one measurement, and the longest kernel that is measured in a captured graph: at larger ones the host
/// is ahead of the device.
const MEASURED: Duration = Duration::from_millis(2);
const CAPTURED: Duration = Duration::from_micros(150);
const MAX_LAUNCHES: usize = 64;
/// Candidates that are measured again, interleaved, and how often.
const FINALISTS: usize = 6;
const ROUNDS: usize = 7;

/// What was measured for one shape.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Tuned {
    /// The shape.
    pub shape: LinearShape,
    /// The steps of the plan that have it.
    pub steps: usize,
    /// How many candidates there were.
    pub candidates: usize,
    /// What the rule chooses.
    pub rule: LinearKernel,
    /// Its time, in microseconds.
    pub rule_us: f64,
    /// The fastest.
    pub best: LinearKernel,
    /// Its time, in microseconds.
    pub best_us: f64,
}

impl HipExecutor {
    /// Measures every candidate for the shapes of the linear layers of `plan`, on random values; `observe` gets each
    /// result as it comes. Returns what can be [saved](Store::save) for later sessions; this one
    /// keeps to what it has selected.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there is but one candidate, since hipBLASLt cannot be used; there is no memory; an error of the
    /// device.
    pub fn tune(&self, plan: &Plan, mut observe: impl FnMut(&Tuned)) -> Result<Store> {
        if !self.selection.has_hipblaslt() {
            let reason = self.selection.note().unwrap_or_default();
            return Err(Error::argument(
                "device",
                format!("has nothing to choose from: {reason}"),
            ));
        }
        let mut shapes: Vec<(LinearShape, usize)> = Vec::new();
        let calls = self.lowered(plan)?.into_iter().flat_map(|(_, calls)| calls);
        for call in calls {
            let Call::Linear(linear) = call else { continue };
            let shape = linear.shape();
            match shapes.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, steps)) => *steps += 1,
                None => shapes.push((shape, 1)),
            }
        }
        let mut store = Store::new(self.selection.tuned().key().clone());
        for (shape, steps) in shapes {
            let tuned = self.tune_shape(shape, steps)?;
            store.insert(shape, tuned.best, tuned.best_us);
            observe(&tuned);
        }
        Ok(store)
    }

    fn tune_shape(&self, shape: LinearShape, steps: usize) -> Result<Tuned> {
        let stream = self.device.stream()?;
        let mut bench = Bench::new(&stream, shape, &self.kernels)?;
        let candidates = bench.libraries.candidates(&shape, self.selection.options());
        let count = candidates.len();
        let rule = self.selection.rule(&shape);
        // A candidate that does not run is none.
        let mut first = Vec::new();
        for kernel in candidates {
            if let Ok(timer) = Timer::new(&mut bench, kernel) {
                first.push(timer);
            }
        }
        for timer in &mut first {
            timer.measure(&mut bench)?;
        }
        first.sort_by(|a, b| a.best().total_cmp(&b.best()));
        let keep = |(rank, timer): &(usize, Timer)| *rank < FINALISTS || timer.kernel == rule;
        let mut finalists: Vec<Timer> = first
            .into_iter()
            .enumerate()
            .filter(keep)
            .map(|(_, t)| t)
            .collect();
        for _ in 0..ROUNDS {
            for timer in &mut finalists {
                timer.measure(&mut bench)?;
            }
        }
        finalists.sort_by(|a, b| a.median().total_cmp(&b.median()));
        let best = finalists
            .first()
            .ok_or_else(|| Error::argument("shape", format!("no kernel computes {shape}")))?;
        let by_rule = finalists.iter().find(|timer| timer.kernel == rule);
        Ok(Tuned {
            shape,
            steps,
            candidates: count,
            rule,
            rule_us: by_rule.map_or(f64::NAN, Timer::median),
            best: best.kernel,
            best_us: best.median(),
        })
    }
}

/// The operands of a shape, in memory of their own.
struct Bench<'a> {
    stream: Stream,
    libraries: Libraries,
    kernels: &'a Kernels,
    memory: DeviceBuffer<u8>,
    weights: DeviceBuffer<u8>,
    call: LinearCall,
    /// The addresses of the weights.
    copies: Vec<u64>,
}

impl<'a> Bench<'a> {
    fn new(stream: &Stream, shape: LinearShape, kernels: &'a Kernels) -> Result<Self> {
        let element = shape.dtype.size();
        let aligned = |elements: usize| (elements * element).next_multiple_of(256);
        let weight = aligned(shape.n * shape.k);
        let number = (WEIGHT_BYTES / weight).clamp(1, MAX_LAUNCHES);
        let [x, rows, bias] = [shape.m * shape.k, shape.m * shape.n, shape.n].map(aligned);
        let mut memory = stream.allocate(x + 3 * rows + bias)?;
        let mut weights = stream.allocate(weight * number)?;
        fill(stream, &mut memory, shape)?;
        fill(stream, &mut weights, shape)?;
        let at = memory.address();
        let first = weights.address();
        let optional = |is: bool, offset: usize| if is { at + offset as u64 } else { 0 };
        let call = LinearCall {
            gemm: crate::hip::Gemm::linear(shape.m, shape.n, shape.k, shape.dtype),
            x: at,
            weight: first,
            bias: optional(shape.bias, x + 3 * rows),
            // Not in place: repeated runs would add up.
            residual: optional(shape.residual, x + rows),
            out: at + x as u64,
            scratch: at + (x + 2 * rows) as u64,
            activation: shape.activation,
        };
        Ok(Self {
            stream: stream.clone(),
            libraries: Libraries::new(stream),
            kernels,
            copies: (0..number).map(|i| first + (i * weight) as u64).collect(),
            memory,
            weights,
            call,
        })
    }
}

/// Fills a buffer with pseudo-random values in ±1/√k: power, and with it the clock, depends on the values.
fn fill(stream: &Stream, buffer: &mut DeviceBuffer<u8>, shape: LinearShape) -> Result<()> {
    const BLOCK: usize = 4 << 20;
    let scale = 1.0 / (shape.k as f32).sqrt();
    let random = std::iter::successors(Some(1u32), |x| {
        Some(x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
    });
    let values: Vec<f32> = random
        .take(BLOCK / shape.dtype.size())
        .map(|x| ((x >> 8) as f32 / 8_388_608.0 - 1.0) * scale)
        .collect();
    let mut block = Vec::with_capacity(BLOCK);
    super::append(&mut block, &values, shape.dtype);
    let mut pinned: PinnedBuffer<u8> = stream.device().pinned(block.len())?;
    pinned.copy_from_slice(&block);
    for at in (0..buffer.bytes()).step_by(BLOCK) {
        pinned.set_len(BLOCK.min(buffer.bytes() - at))?;
        pinned = buffer.upload(at, pinned)?.wait()?;
    }
    Ok(())
}

/// Several launches of one candidate.
struct Launches<'a, 'b> {
    bench: &'b mut Bench<'a>,
    kernel: LinearKernel,
    count: usize,
}

impl Work for Launches<'_, '_> {
    type Error = Error;

    fn enqueue(&mut self, _: &Stream) -> Result<()> {
        let Bench {
            libraries,
            kernels,
            memory,
            weights,
            call,
            copies,
            ..
        } = &mut *self.bench;
        let (memory, weights) = (memory.writing(), weights.reading());
        let regions = Regions([memory, weights, weights, weights]);
        for weight in copies.iter().cycle().take(self.count) {
            let call = LinearCall {
                weight: *weight,
                ..*call
            };
            libraries.linear_by(self.kernel, &call, kernels, &regions)?;
        }
        Ok(())
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        Vec::new()
    }
}

/// The times of a candidate.
struct Timer {
    kernel: LinearKernel,
    count: usize,
    replay: Option<Replay>,
    /// Microseconds of a launch.
    times: Vec<f64>,
}

impl Timer {
    /// # Errors
    ///
    /// The candidate does not run.
    fn new(bench: &mut Bench<'_>, kernel: LinearKernel) -> Result<Self> {
        let mut timer = Self {
            kernel,
            count: 1,
            replay: None,
            times: Vec::new(),
        };
        // The first launch may load code.
        timer.measure(bench)?;
        timer.measure(bench)?;
        let once = Duration::from_secs_f64(timer.best() / 1e6);
        timer.count = (MEASURED.as_secs_f64() / once.as_secs_f64().max(1e-6))
            .ceil()
            .min(MAX_LAUNCHES as f64) as usize;
        if once < CAPTURED {
            let stream = bench.stream.clone();
            let mut launches = Launches {
                bench,
                kernel,
                count: timer.count,
            };
            // Where nothing can be captured, the launches count as well.
            timer.replay = Replay::new(&stream, &mut launches)?.ok();
        }
        timer.times.clear();
        Ok(timer)
    }

    fn measure(&mut self, bench: &mut Bench<'_>) -> Result<()> {
        let stream = bench.stream.clone();
        let before = stream.record()?;
        match &mut self.replay {
            Some(replay) => replay.run()?,
            None => Launches {
                bench,
                kernel: self.kernel,
                count: self.count,
            }
            .enqueue(&stream)?,
        }
        let time = stream.record()?.since(&before)?;
        self.times.push(1e6 * time.as_secs_f64() / self.count as f64);
        Ok(())
    }

    fn best(&self) -> f64 {
        self.times.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn median(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
    }
}
