//! Measures the candidates for each problem of a plan.

use std::time::Duration;

use super::candidate::Hipsparselt;
use super::elements::append;
use super::executor::HipExecutor;
use super::libraries::Libraries;
use super::lower::{
    AttentionCall, Call, Float8Call, Float8Result, Int8Call, LinearCall, PatchEmbeddingCall, SparseForm,
};
use super::regions::Regions;
use crate::dtype::from_hip;
use crate::error::{Error, Result};
use crate::exec::select::{Choice, HIPSPARSELT, MIOPEN, PackedLayer, Problem, Selection, Store};
use crate::graph::plan::{ALIGNMENT, Plan};
use crate::hip::{
    DType, DeviceAddress, DeviceBuffer, Dnn, Gemm, Operand, PinnedBuffer, Replay, SparseLt, Stream, Work,
};
use crate::kernels::{Kernels, PatchExtractArgs, Strided, is_fused, sparse_bytes, sparse_indices_at};

/// Total size of the weight copies that successive launches cycle through. Exceeds any cache, because each
/// layer of a model has its own weight.
const WEIGHT_BYTES: usize = 192 << 20;
/// Target device time of one measurement.
const MEASUREMENT_TIME: Duration = Duration::from_millis(2);
/// Maximum device time of a call that is measured by graph replay. During longer calls, the host enqueues the next ones in time.
const MAX_REPLAYED_TIME: Duration = Duration::from_micros(150);
/// Maximum number of launches of one measurement.
const MAX_LAUNCHES: usize = 64;
/// Number of fastest candidates of the first phase that the second phase measures again. It also measures the rule's candidate.
const FINALISTS: usize = 6;
/// Number of measurements per finalist. Each round measures all finalists in turn.
const ROUNDS: usize = 7;

/// Result of tuning one problem.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Tuned {
    /// The problem.
    pub shape: Problem,
    /// Number of steps of the plan that have this problem.
    pub steps: usize,
    /// Number of candidates.
    pub candidates: usize,
    /// Candidate that the rule selects without measurements.
    pub rule: Choice,
    /// Time of `rule` in microseconds. NaN if it failed to run.
    pub rule_us: f64,
    /// The fastest candidate.
    pub best: Choice,
    /// Time of `best` in microseconds.
    pub best_us: f64,
    /// The fastest candidate for dense weights. Set if `best` is for packed 2:4 sparse weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<Dense>,
}

/// The fastest candidate for a dense weight.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Dense {
    /// The candidate.
    pub best: Choice,
    /// Time of `best` in microseconds.
    pub best_us: f64,
}

impl Tuned {
    /// Returns the times with packed and dense weights, at a batch size of `images`. `None` unless packed 2:4 sparse weights are the fastest.
    pub fn packed_layer(&self, images: usize) -> Option<PackedLayer> {
        let dense = self.dense?;
        Some(PackedLayer {
            images,
            problem: self.shape,
            packed: (self.best, self.best_us),
            dense: (dense.best, dense.best_us),
        })
    }
}

impl HipExecutor {
    /// Returns the problems of `plan`, and the number of steps that have each problem.
    ///
    /// # Errors
    ///
    /// Returns an error if the device cannot compute a step.
    pub fn problems(&self, plan: &Plan) -> Result<Vec<(Problem, usize)>> {
        let calls = self.problem_calls(plan)?;
        let problem = |(call, steps): (Call, usize)| Some((call.problem()?, steps));
        Ok(calls.into_iter().filter_map(problem).collect())
    }

    /// Returns one call per problem, and its number of steps. Linear layers come first, because a patch embedding uses the choice of its linear
    /// layer.
    fn problem_calls(&self, plan: &Plan) -> Result<Vec<(Call, usize)>> {
        let mut all: Vec<(Call, usize)> = Vec::new();
        let mut add = |call: Call| match all
            .iter_mut()
            .find(|(known, _)| known.problem() == call.problem())
        {
            Some((_, steps)) => *steps += 1,
            None => all.push((call, 1)),
        };
        for call in self.lowered(plan)?.into_iter().flat_map(|(_, calls)| calls) {
            match call {
                Call::Linear(_) | Call::Attention(_) => add(call),
                Call::Projection(embedding) => {
                    add(Call::Linear(embedding.linear));
                    add(call);
                }
                Call::Patches(_)
                | Call::Kernel(_)
                | Call::Gemm { .. }
                | Call::CopyRows(_)
                | Call::AllReduce(_)
                | Call::Custom(_) => {}
            }
        }
        all.sort_by_key(|(call, _)| !matches!(call, Call::Linear(_)));
        Ok(all)
    }

    /// Measures all candidates for the [problems](HipExecutor::problems) of `plan` on random values, and calls `observe` with each result.
    /// Skips problems that have only one candidate. Returns a store to [save](Store::save) for later sessions. Does not change the selection
    /// of this executor.
    ///
    /// # Errors
    ///
    /// - [`Error::Device`] if no problem has more than one candidate, because hipBLASLt and MIOpen are unavailable.
    /// - The error of the device, for example if memory runs out.
    pub fn tune(&self, plan: &Plan, mut observe: impl FnMut(&Tuned)) -> Result<Store> {
        let mut store = self.store();
        for (call, steps) in self.problem_calls(plan)? {
            let has_choice = |linear: &LinearCall| {
                self.selection.has_hipblaslt() || linear.sparse.is_some() || linear.int8.is_some()
            };
            if matches!(&call, Call::Linear(linear) if !has_choice(linear)) {
                continue;
            }
            if let Some(tuned) = self.tune_call(&call, steps, &store)? {
                store.insert(tuned.shape, tuned.best, tuned.best_us);
                observe(&tuned);
            }
        }
        if store.is_empty() {
            let no_hipblaslt = self.selection.note().map(str::to_owned);
            let no_miopen = Dnn::version(&self.device).err().map(|e| e.to_string());
            let reasons: Vec<String> = no_hipblaslt.into_iter().chain(no_miopen).collect();
            let reason = format!(
                "no call has more than one candidate, so there is nothing to tune ({}). Install hipBLASLt or MIOpen",
                reasons.join("; ")
            );
            return Err(Error::device(self.device.name(), reason));
        }
        Ok(store)
    }

    /// Returns an empty store for this device and its library versions.
    pub fn store(&self) -> Store {
        let key = self.selection.key().clone();
        let sparse = if self.constants.sparse().is_empty() {
            None
        } else {
            Hipsparselt::version(&self.memory.copier)
        };
        let key = key.with(MIOPEN, Dnn::version(&self.device).ok());
        Store::new(key.with(HIPSPARSELT, sparse))
    }

    /// Loads the measurements for this device and its library versions from the user's cache.
    pub fn cached_store(&self) -> Store {
        Store::current(self.store().key())
    }

    /// Measures the candidates for `call`. Returns `None` if there is only one. `store` selects the candidates for nested calls, such as the
    /// linear layer of a patch embedding.
    fn tune_call(&self, call: &Call, steps: usize, store: &Store) -> Result<Option<Tuned>> {
        let Some(problem) = call.problem() else {
            return Ok(None);
        };
        let rule = self.selection.rule(&problem);
        let mut libraries = Libraries::new(&self.device.stream()?, None);
        let candidates = libraries.choices(call, self.selection.options());
        if candidates == [rule] {
            return Ok(None);
        }
        let selection = self.selection.measuring(store.clone());
        let mut bench = Bench::new(call, problem, libraries, selection, &self.kernels)?;
        let count = candidates.len();
        // Skip candidates that fail to run.
        let mut first = Vec::new();
        for candidate in candidates {
            if let Ok(timer) = Timer::new(&mut bench, candidate) {
                first.push(timer);
            }
        }
        for timer in &mut first {
            timer.measure(&mut bench)?;
        }
        first.sort_by(|a, b| a.best().total_cmp(&b.best()));
        let is_dense = |timer: &Timer| !timer.candidate.is_for_packed();
        let first_dense = first.iter().position(is_dense);
        let keep = |(rank, timer): &(usize, Timer)| {
            *rank < FINALISTS || timer.candidate == rule || Some(*rank) == first_dense
        };
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
        let best = finalists.first().ok_or_else(|| {
            Error::device(self.device.name(), format!("no candidate can compute {problem}"))
        })?;
        let dense = finalists.iter().find(|timer| is_dense(timer)).map(|timer| Dense {
            best: timer.candidate,
            best_us: timer.median(),
        });
        let by_rule = finalists.iter().find(|timer| timer.candidate == rule);
        Ok(Some(Tuned {
            shape: problem,
            steps,
            candidates: count,
            rule,
            rule_us: by_rule.map_or(f64::NAN, Timer::median),
            best: best.candidate,
            best_us: best.median(),
            dense: dense.filter(|_| best.candidate.is_for_packed()),
        }))
    }
}

/// Calls that compute one problem, and their operands. The operands are separate from the model's memory.
struct Bench<'a> {
    stream: Stream,
    libraries: Libraries,
    /// Selects the candidate being measured.
    selection: Selection,
    kernels: &'a Kernels,
    problem: Problem,
    memory: DeviceBuffer<u8>,
    weights: DeviceBuffer<u8>,
    /// Calls that compute the problem, for each copy of the weight.
    launches: Vec<Vec<Call>>,
    /// Calls with packed 2:4 sparse weights, one entry per format. Empty for a dense problem.
    sparse: Vec<SparseLaunches>,
}

/// Copies of a packed 2:4 sparse weight in one format, and the calls for each copy.
struct SparseLaunches {
    form: SparseForm,
    weights: DeviceBuffer<u8>,
    launches: Vec<Vec<Call>>,
}

impl SparseLaunches {
    /// Returns true if `candidate` uses this format.
    fn is_for(&self, candidate: Choice) -> bool {
        match self.form {
            SparseForm::Dense => false,
            SparseForm::Packed => candidate == Choice::Sparse,
            SparseForm::Compressed { .. } => matches!(candidate, Choice::Hipsparselt { .. }),
        }
    }
}

impl<'a> Bench<'a> {
    fn new(
        call: &Call,
        problem: Problem,
        libraries: Libraries,
        selection: Selection,
        kernels: &'a Kernels,
    ) -> Result<Self> {
        let stream = libraries.stream().clone();
        let (dtype, weight, sum) = match problem {
            Problem::Linear(shape) => (shape.dtype, shape.n * shape.k, shape.k),
            Problem::PatchEmbedding(shape) => {
                let linear = shape.linear();
                (linear.dtype, linear.n * linear.k, linear.k)
            }
            Problem::Attention(shape) => (shape.dtype, 0, 1),
        };
        let weight = (weight * dtype.size()).next_multiple_of(ALIGNMENT);
        let number = (WEIGHT_BYTES / weight.max(1)).clamp(1, MAX_LAUNCHES);
        let (_, bytes) = placed(call, DeviceAddress::NULL, DeviceAddress::NULL);
        let mut memory = stream.allocate(bytes)?;
        let mut weights = stream.allocate(weight * number)?;
        // Use random values of realistic scale: they affect the power draw, and so the clock rate.
        let scale = 1.0 / (sum as f32).sqrt();
        fill(&stream, &mut memory, dtype, scale)?;
        fill(&stream, &mut weights, dtype, scale)?;
        let copies = (0..number).map(|i| weights.address().offset(i * weight));
        let launches = copies.map(|weight| placed(call, memory.address(), weight).0);
        let mut sparse = Vec::new();
        if let Call::Linear(linear) = call
            && linear.sparse.is_some()
        {
            let packed = packed_weights(&stream, linear, number, scale)?;
            let compressed = compressed_weights(&stream, linear, number, scale)?;
            for (form, weights) in [(SparseForm::Packed, packed)].into_iter().chain(compressed) {
                let copies = (0..number).map(|i| weights.address().offset(i * (weights.bytes() / number)));
                let launch = |weight| {
                    let mut calls = placed(call, memory.address(), weight).0;
                    for call in &mut calls {
                        if let Call::Linear(call) = call {
                            call.sparse = Some(form);
                        }
                    }
                    calls
                };
                let launches = copies.map(launch).collect();
                sparse.push(SparseLaunches {
                    form,
                    weights,
                    launches,
                });
            }
        }
        Ok(Self {
            launches: launches.collect(),
            sparse,
            stream,
            libraries,
            selection,
            kernels,
            problem,
            memory,
            weights,
        })
    }
}

/// Returns copies of `call` with their operands at `base` and their weight at `weight`, and the size of the operands in bytes.
fn placed(call: &Call, base: DeviceAddress, weight: DeviceAddress) -> (Vec<Call>, usize) {
    let mut end = 0;
    let mut place = |bytes: usize| {
        let at = base.offset(end);
        end += bytes.next_multiple_of(ALIGNMENT);
        at
    };
    let mut linear = |call: &LinearCall| {
        let Gemm { m, n, k, .. } = call.gemm;
        let element = call.gemm.wide.size();
        let optional = |address: DeviceAddress, at| if address.is_null() { address } else { at };
        let float8 = call.float8.map(|float8| {
            let [rows, columns] = if float8.rows { [m, n] } else { [1, 1] };
            Float8Call {
                x: place(rows * size_of::<f32>()),
                weight: place(columns * size_of::<f32>()),
                out: float8.out.map(|out| Float8Result {
                    reciprocal: place(size_of::<f32>()),
                    ..out
                }),
                ..float8
            }
        });
        let int8 = call.int8.map(|_| Int8Call {
            ranges: place(m * 2 * size_of::<f32>()),
            scales: place(n * size_of::<f32>()),
            column_sums: place(n * size_of::<i32>()),
        });
        let sums_of_bytes = int8.is_some() || float8.is_some_and(|float8| float8.rows);
        let scratch = if sums_of_bytes { size_of::<f32>() } else { element };
        LinearCall {
            x: place(m * k * call.gemm.inputs.size()),
            weight,
            bias: optional(call.bias, place(n * element)),
            // Do not alias `out`: repeated launches would accumulate.
            residual: optional(call.residual, place(m * n * element)),
            out: place(m * n * element),
            scratch: place(m * n * scratch),
            float8,
            int8,
            sparse: call.sparse.map(|_| SparseForm::Dense),
            ..*call
        }
    };
    let calls = match call {
        Call::Linear(call) => vec![Call::Linear(linear(call))],
        Call::Patches(PatchEmbeddingCall {
            extract,
            linear: call,
        })
        | Call::Projection(PatchEmbeddingCall {
            extract,
            linear: call,
        }) => {
            let linear = linear(call);
            let pixels = extract.images as usize * (3 * extract.height * extract.width) as usize;
            let extract = PatchExtractArgs {
                pixels: place(pixels),
                out: linear.x,
                ..*extract
            };
            let call = PatchEmbeddingCall { extract, linear };
            vec![Call::Patches(call), Call::Projection(call)]
        }
        Call::Attention(call) => {
            // Keep the plan's layout, in which queries, keys and values share rows.
            let bytes = |of: &Strided| call.images * of.tokens * of.token * call.dtype.size();
            let first = call
                .operands
                .iter()
                .map(|of| of.address)
                .min()
                .unwrap_or_default();
            let offset = |of: &Strided| of.address.offset_from(first).unwrap_or(0) as usize;
            let end = call.operands.iter().map(|of| offset(of) + bytes(of)).max();
            let operands = place(end.unwrap_or(0));
            let scores = call.images * call.spec.heads * call.operands[0].tokens.pow(2) * call.dtype.size();
            let call = AttentionCall {
                operands: call.operands.map(|of| Strided {
                    address: operands.offset(offset(&of)),
                    ..of
                }),
                rope: None,
                scratch: place(if is_fused(&call.spec) { 0 } else { scores }),
                ..*call
            };
            vec![Call::Attention(call)]
        }
        Call::Kernel(_) | Call::Gemm { .. } | Call::CopyRows(_) | Call::AllReduce(_) | Call::Custom(_) => {
            Vec::new()
        }
    };
    (calls, end)
}

/// Creates `number` packed weights in one buffer. Values are random. The first two of every four elements are nonzero.
fn packed_weights(stream: &Stream, call: &LinearCall, number: usize, scale: f32) -> Result<DeviceBuffer<u8>> {
    let Gemm { n, k, inputs, .. } = call.gemm;
    let (indices, end) = (sparse_indices_at(n, k), sparse_bytes(n, k));
    let bytes = end.next_multiple_of(ALIGNMENT);
    let mut weights = stream.allocate(bytes * number)?;
    fill(stream, &mut weights, inputs, scale)?;
    let mut pinned: PinnedBuffer<u8> = stream.device().pinned(end - indices)?;
    pinned.copy_from_slice(&vec![0x44; end - indices]);
    for i in 0..number {
        pinned = weights.upload(i * bytes + indices, pinned)?.wait()?;
    }
    Ok(weights)
}

/// Returns `number` copies of a weight that hipSPARSELt compressed. `None` if hipSPARSELt is unavailable or does not support the weight.
fn compressed_weights(
    stream: &Stream,
    call: &LinearCall,
    number: usize,
    scale: f32,
) -> Result<Option<(SparseForm, DeviceBuffer<u8>)>> {
    let Gemm { n, k, inputs, .. } = call.gemm;
    let Ok(lt) = SparseLt::with_workspace(stream, 0) else {
        return Ok(None);
    };
    let Ok(size) = lt.compressed_bytes([n, k], inputs) else {
        return Ok(None);
    };
    let mut dense = Vec::with_capacity(n * k * inputs.size());
    let kept = random(n * k / 2, scale);
    let rows: Vec<f32> = kept
        .chunks(2)
        .flat_map(|two| [two[0], two[1], 0.0, 0.0])
        .collect();
    append(&mut dense, &rows, from_hip(inputs));
    let dense = stream.upload(&dense)?;
    let bytes = size.next_multiple_of(ALIGNMENT);
    let mut weights = stream.zeroed(bytes * number)?;
    for i in 0..number {
        let compressed = weights.writing().part(i * bytes..i * bytes + size)?;
        lt.compress([n, k], inputs, dense.reading(), compressed)?;
    }
    stream.synchronize()?;
    Ok(Some((SparseForm::Compressed { bytes: size }, weights)))
}

/// Returns pseudo-random values between −`scale` and `scale`.
fn random(count: usize, scale: f32) -> Vec<f32> {
    let numbers = std::iter::successors(Some(1u32), |x| {
        Some(x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
    });
    let value = |x: u32| ((x >> 8) as f32 / 8_388_608.0 - 1.0) * scale;
    numbers.take(count).map(value).collect()
}

/// Fills a buffer with pseudo-random values between −`scale` and `scale`.
fn fill(stream: &Stream, buffer: &mut DeviceBuffer<u8>, dtype: DType, scale: f32) -> Result<()> {
    const BLOCK: usize = 4 << 20;
    // Fill int8 buffers with bytes of f32 values: the operands include f32 scales, which must be finite.
    let dtype = match dtype {
        DType::I8 => DType::F32,
        dtype => dtype,
    };
    let mut block = Vec::with_capacity(BLOCK);
    append(&mut block, &random(BLOCK / dtype.size(), scale), from_hip(dtype));
    let mut pinned: PinnedBuffer<u8> = stream.device().pinned(block.len())?;
    pinned.copy_from_slice(&block);
    for at in (0..buffer.bytes()).step_by(BLOCK) {
        pinned.set_len(BLOCK.min(buffer.bytes() - at))?;
        pinned = buffer.upload(at, pinned)?.wait()?;
    }
    Ok(())
}

/// Enqueues `count` launches of a candidate.
struct Launches<'a, 'b> {
    bench: &'b mut Bench<'a>,
    candidate: Choice,
    count: usize,
}

impl Work for Launches<'_, '_> {
    type Error = Error;

    fn enqueue(&mut self, _: &Stream) -> Result<()> {
        let Bench {
            libraries,
            selection,
            kernels,
            problem,
            memory,
            weights,
            launches,
            sparse,
            ..
        } = &mut *self.bench;
        let (weights, launches) = match sparse.iter().find(|sparse| sparse.is_for(self.candidate)) {
            Some(sparse) => (&sparse.weights, &sparse.launches),
            None => (&*weights, &*launches),
        };
        selection.choose(*problem, self.candidate);
        let (memory, weights) = (memory.writing(), weights.reading());
        let regions = Regions {
            arena: memory,
            constants: weights,
            states: None,
            inputs: weights,
            scratch: weights,
        };
        for calls in launches.iter().cycle().take(self.count) {
            libraries.submit(calls.clone(), 1, selection, kernels, &regions)?;
        }
        Ok(())
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        Vec::new()
    }
}

/// Measures a candidate, and stores its times.
struct Timer {
    candidate: Choice,
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
    fn new(bench: &mut Bench<'_>, candidate: Choice) -> Result<Self> {
        // Report a candidate that cannot be prepared. `submit` would silently use another one.
        for call in bench.launches.iter().flatten().take(2) {
            let prepared = bench.libraries.prepare(candidate, call, false);
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

    fn measure(&mut self, bench: &mut Bench<'_>) -> Result<()> {
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
    fn best(&self) -> f64 {
        self.times.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Returns the median time in microseconds.
    fn median(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
    }
}
