//! Calls that compute one problem, with operands of their own.

use crate::dtype::from_hip;
use crate::error::Result;
use crate::exec::hip::elements::append;
use crate::exec::hip::libraries::Libraries;
use crate::exec::hip::lower::{
    AttentionCall, Call, ConvCall, Float8Call, Float8Result, Int8Call, LinearCall, PatchEmbeddingCall,
    PatternAttentionCall, SparseForm,
};
use crate::exec::hip::regions::Regions;
use crate::exec::select::{Choice, Problem, Selection};
use crate::graph::plan::ALIGNMENT;
use crate::hip::{DType, DeviceAddress, DeviceBuffer, Gemm, Operand, PinnedBuffer, SparseLt, Stream};
use crate::kernels::{Kernels, PatchExtractArgs, Strided, is_fused, sparse_bytes, sparse_indices_at};

/// Total size of the weight copies that successive launches cycle through. Exceeds any cache, because each
/// layer of a model has its own weight.
const WEIGHT_BYTES: usize = 192 << 20;
/// Maximum number of launches of one measurement.
pub(super) const MAX_LAUNCHES: usize = 64;

/// Calls that compute one problem, and their operands. The operands are separate from the model's memory.
pub(super) struct Bench<'a> {
    pub(super) stream: Stream,
    pub(super) libraries: Libraries,
    /// Selects the candidate being measured.
    selection: Selection,
    pub(super) kernels: &'a Kernels,
    /// The model's constants, of which patterns read captured tensors.
    constants: Operand<'a>,
    problem: Problem,
    memory: DeviceBuffer<u8>,
    weights: DeviceBuffer<u8>,
    /// Calls that compute the problem, for each copy of the weight.
    pub(super) launches: Vec<Vec<Call>>,
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
            SparseForm::Packed => candidate == Choice::SparseGemm,
            SparseForm::Compressed { .. } => matches!(candidate, Choice::Hipsparselt { .. }),
        }
    }
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        call: &Call,
        problem: Problem,
        libraries: Libraries,
        selection: Selection,
        kernels: &'a Kernels,
        constants: Operand<'a>,
    ) -> Result<Self> {
        let stream = libraries.stream().clone();
        let (dtype, weight, sum) = match problem {
            Problem::Linear(shape) => (shape.dtype, shape.n * shape.k, shape.k),
            Problem::PatchEmbedding(shape) => {
                let linear = shape.linear();
                (linear.dtype, linear.n * linear.k, linear.k)
            }
            Problem::Attention(shape) => (shape.dtype, 0, 1),
            Problem::PatternAttention(shape) => (shape.dtype, 0, 1),
            Problem::Conv(shape) => {
                let [_, weight, _] = shape.elements();
                (shape.dtype, weight, weight / shape.features.max(1))
            }
        };
        let weight = (weight * dtype.size()).next_multiple_of(ALIGNMENT);
        let number = (WEIGHT_BYTES / weight.max(1)).clamp(1, MAX_LAUNCHES);
        let is_constant = |address: DeviceAddress| {
            let offset = address.offset_from(constants.address());
            offset.is_some_and(|offset| offset < constants.bytes() as u64)
        };
        let placed = |call: &Call, memory, weight| placed(call, memory, weight, &is_constant);
        let (_, bytes) = placed(call, DeviceAddress::NULL, DeviceAddress::NULL);
        let mut memory = stream.allocate(bytes)?;
        let mut weights = stream.allocate(weight * number)?;
        // Use random values of realistic scale: they affect the power draw, and so the clock rate.
        let scale = 1.0 / (sum as f32).sqrt();
        fill(&stream, &mut memory, dtype, scale)?;
        fill(&stream, &mut weights, dtype, scale)?;
        let copies = (0..number).map(|i| weights.address().offset(i * weight));
        let launches: Vec<Vec<Call>> = copies
            .map(|weight| placed(call, memory.address(), weight).0)
            .collect();
        // All launches share the captured tensors.
        for call in launches.iter().take(1).flatten() {
            if let Call::PatternAttention(call) = call {
                fill_integers(&stream, &mut memory, call)?;
            }
        }
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
            launches,
            sparse,
            stream,
            libraries,
            selection,
            kernels,
            constants,
            problem,
            memory,
            weights,
        })
    }

    /// Enqueues `count` launches of a candidate.
    pub(super) fn launch(&mut self, candidate: Choice, count: usize) -> Result<()> {
        let Bench {
            libraries,
            selection,
            kernels,
            constants,
            problem,
            memory,
            weights,
            launches,
            sparse,
            ..
        } = self;
        let (weights, launches) = match sparse.iter().find(|sparse| sparse.is_for(candidate)) {
            Some(sparse) => (&sparse.weights, &sparse.launches),
            None => (&*weights, &*launches),
        };
        selection.choose(*problem, candidate);
        let (memory, weights) = (memory.writing(), weights.reading());
        let regions = Regions {
            arena: memory,
            results: None,
            constants: weights,
            states: None,
            inputs: *constants,
            scratch: weights,
            // No candidate has counters.
            counters: weights,
        };
        for calls in launches.iter().cycle().take(count) {
            libraries.submit(calls.clone(), 1, selection, kernels, &regions)?;
        }
        Ok(())
    }
}

/// Returns copies of `call` with their operands at `base` and their weight at `weight`, and the size of the operands in bytes. Tensors that
/// a pattern captures stay where they are if `is_constant`.
fn placed(
    call: &Call,
    base: DeviceAddress,
    weight: DeviceAddress,
    is_constant: &dyn Fn(DeviceAddress) -> bool,
) -> (Vec<Call>, usize) {
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
            // The gradient of a bias has m elements.
            bias: optional(call.bias, place(m.max(n) * element)),
            // Do not alias `out`: repeated launches would accumulate.
            residual: optional(call.residual, place(m * n * element)),
            out: place(m * n * element),
            preactivation: optional(call.preactivation, place(m * n * element)),
            scratch: place((m * n * scratch).max(call.partial_sum_bytes())),
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
        Call::Conv(call) => {
            let shape = call.shape();
            let element = shape.dtype.size();
            let [x, _, result] = shape.elements().map(|elements| elements * element);
            let optional = |address: DeviceAddress, at| if address.is_null() { address } else { at };
            let call = ConvCall {
                x: place(x),
                weight,
                bias: optional(call.bias, place(call.features * element)),
                // Do not alias `out`: repeated launches would accumulate.
                residual: optional(call.residual, place(result)),
                out: place(result),
                scratch: place(call.scratch_bytes(false).max(result)),
                ..*call
            };
            vec![Call::Conv(call)]
        }
        Call::PatternAttention(call) => {
            let call = call.relocated(|access| {
                if is_constant(access.address) {
                    return access.address;
                }
                // Keep the alignment, on which the width of accesses depends.
                let offset = access.address.as_u64() as usize % ALIGNMENT;
                place(offset + access.bytes).offset(offset)
            });
            vec![call.into()]
        }
        Call::Kernel(_)
        | Call::Gemm { .. }
        | Call::CopyRows(_)
        | Call::AllReduce(_)
        | Call::Collective(_)
        | Call::AwaitCollective(_)
        | Call::RankPart(_)
        | Call::Zero { .. }
        | Call::Custom(_)
        | Call::Generated(_) => Vec::new(),
    };
    (calls, end)
}

/// Sets captured integers in `memory` to 1: all tokens are of one document, and none is padding.
fn fill_integers(stream: &Stream, memory: &mut DeviceBuffer<u8>, call: &PatternAttentionCall) -> Result<()> {
    for access in call.integers() {
        let at = access.address.offset_from(memory.address()).map(|at| at as usize);
        if let Some(at) = at.filter(|at| at + access.bytes <= memory.bytes()) {
            let mut pinned: PinnedBuffer<u8> = stream.device().pinned(access.bytes)?;
            pinned.copy_from_slice(&1i32.to_ne_bytes().repeat(access.bytes / size_of::<i32>()));
            memory.upload(at, pinned)?.wait()?;
        }
    }
    Ok(())
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
