//! The calls of whole models, executed on the host: device memory is an array, and each kernel the plain loops that the
//! fake provider has too. This tests operands, strides, order and in-place results without a GPU.

use std::collections::HashMap;
use std::sync::Arc;

use half::{bf16, f16};

use super::constants::{HostConstants, unpack};
use super::lower::{Addresses, Call, Unfused, lower, rotation, scratch_bytes};
use crate::graph::plan::{Operand, Plan, Step};
use crate::graph::tests::rotary;
use crate::graph::tests::vit::{Head, Projection, Vit};
use crate::graph::{Graph, Optimizations, OutputKind, Passes, Role, ValueId, interpret, optimize, shard};
use crate::hip::{Access, Matrix};
use crate::kernels::{self as bindings, KernelCall, PatchExtractChwArgs};
use crate::model::{self, LoadOptions};
use crate::ops::{Activation, Attention, AttentionOperands, Linear, Normalize, Op, PatchConv, Pool};
use crate::reference::{assert_close, model_tolerance, tolerance};
use crate::tensor::{DType, Input, Tensor};

#[path = "../../../tests/fake_provider/kernels.rs"]
mod kernels;

use self::kernels::{Memory as _, OnHost};

impl OnHost for bindings::PatchExtractArgs {
    fn run(&self, memory: &mut impl kernels::Memory) {
        kernels::patch_extract(memory, self, false);
    }
}

impl OnHost for PatchExtractChwArgs {
    fn run(&self, memory: &mut impl kernels::Memory) {
        kernels::patch_extract(memory, &self.0, true);
    }
}

/// Runs a kernel on the host: one of those that models call.
fn run(kernel: &KernelCall, memory: &mut Memory) {
    match kernel {
        KernelCall::Add(arguments) => arguments.run(memory),
        KernelCall::Attention(arguments) => arguments.run(memory),
        KernelCall::AttentionBias(arguments) => arguments.run(memory),
        KernelCall::AttentionStatistics(arguments) => arguments.run(memory),
        KernelCall::AttentionRope(arguments) => arguments.run(memory),
        KernelCall::BiasActivation(arguments) => arguments.run(memory),
        KernelCall::LayerNorm(arguments) => arguments.run(memory),
        KernelCall::PatchExtract(arguments) => arguments.run(memory),
        KernelCall::PatchExtractChw(arguments) => arguments.run(memory),
        KernelCall::Pool(arguments) => arguments.run(memory),
        KernelCall::Rope(arguments) => arguments.run(memory),
        KernelCall::Softmax(arguments) => arguments.run(memory),
        KernelCall::SwiGlu(arguments) => arguments.run(memory),
        KernelCall::SwiGluNorm(arguments) => arguments.run(memory),
        KernelCall::Tokens(arguments) => arguments.run(memory),
        KernelCall::Transpose(arguments) => arguments.run(memory),
        #[allow(unreachable_patterns, reason = "kernels that no model here calls")]
        other => panic!("{other:?} has no loops on the host"),
    }
}

/// A GPU's memory: address `a` is byte `a`.
struct Memory {
    bytes: Vec<u8>,
    dtype: DType,
}

impl kernels::Memory for Memory {
    fn get(&self, address: u64, index: usize) -> f32 {
        let size = self.dtype.size();
        let at = address as usize + index * size;
        unpack(&self.bytes[at..at + size], self.dtype)[0]
    }

    fn set(&mut self, address: u64, index: usize, value: f32) {
        let size = self.dtype.size();
        let at = address as usize + index * size;
        let to = &mut self.bytes[at..at + size];
        match self.dtype {
            DType::F16 => to.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
            DType::BF16 => to.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
            _ => to.copy_from_slice(&value.to_ne_bytes()),
        }
    }

    fn pixel(&self, address: u64, index: usize) -> u8 {
        self.bytes[address as usize + index]
    }

    fn set_value(&mut self, address: u64, index: usize, value: f32) {
        let at = address as usize + 4 * index;
        self.bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn value(&self, address: u64, index: usize) -> f32 {
        let at = address as usize + 4 * index;
        f32::from_ne_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn erf(&self, x: f32) -> f32 {
        libm::erff(x)
    }
}

impl Memory {
    fn call(&mut self, call: &Call) {
        match call {
            Call::Kernel(kernel) => run(kernel, self),
            Call::Gemm { gemm, a, b, c } => {
                let at = |transposed, stride, row: usize, column: usize| match transposed {
                    false => row * stride + column,
                    true => column * stride + row,
                };
                let at = |matrix: &Matrix, image: usize, row, column| {
                    image * matrix.batch_stride + at(matrix.transposed, matrix.stride, row, column)
                };
                assert!(!gemm.c.transposed);
                for index in 0..gemm.batch * gemm.m * gemm.n {
                    let (image, i, j) = (index / gemm.n / gemm.m, index / gemm.n % gemm.m, index % gemm.n);
                    let products = (0..gemm.k).map(|k| {
                        self.get(*a, at(&gemm.a, image, i, k)) * self.get(*b, at(&gemm.b, image, k, j))
                    });
                    let sum: f32 = products.sum();
                    let to = at(&gemm.c, image, i, j);
                    let before = match gemm.beta {
                        0.0 => 0.0,
                        beta => beta * self.get(*c, to),
                    };
                    self.set(*c, to, gemm.alpha * sum + before);
                }
            }
            Call::AllReduce(_) => panic!("{call:?} needs all ranks"),
            Call::Linear(_) | Call::Patches(_) | Call::Projection(_) | Call::Attention(_) => {
                panic!("{call:?} is other calls on the host")
            }
            Call::CopyRows(copy) => {
                for row in 0..copy.rows {
                    let from = copy.from as usize + row * copy.from_stride;
                    let to = copy.to as usize + row * copy.to_stride;
                    self.bytes.copy_within(from..from + copy.bytes, to);
                }
            }
        }
    }
}

/// Without any library but for GEMMs: a linear layer is one, and a kernel.
fn unfused(call: Call) -> Vec<Call> {
    call.own().unwrap().into_iter().flat_map(unfused_linear).collect()
}

fn unfused_linear(call: Call) -> Vec<Call> {
    let Call::Linear(linear) = call else {
        return vec![call];
    };
    let Unfused { gemm, c, kernel } = linear.unfused().unwrap();
    let (a, b) = (linear.x, linear.weight);
    let gemm = Call::Gemm { gemm, a, b, c };
    [gemm].into_iter().chain(kernel.map(Call::from)).collect()
}

/// Every range of memory that a kernel's call may access.
fn accesses(call: &Call, element: usize) -> Vec<Access> {
    let mut all = Vec::new();
    if let Call::Kernel(kernel) = call {
        kernel.accesses(element, &mut |access| all.push(access));
    }
    all
}

/// A model's graph in memory.
struct Host {
    memory: Memory,
    constants: HashMap<ValueId, u64>,
    input: u64,
    arena: u64,
    scratch: u64,
}

impl Host {
    fn new(plan: &Plan, input: Input<'_>) -> Self {
        let HostConstants {
            bytes: weights,
            offsets,
            ..
        } = HostConstants::new(plan.graph(), plan.dtype(), None, None);
        let mut bytes = vec![0; 256];
        let mut region = |contents: &[u8]| {
            bytes.resize(bytes.len().next_multiple_of(256), 0);
            bytes.extend_from_slice(contents);
            (bytes.len() - contents.len()) as u64
        };
        let weights = region(&weights);
        let input = match input {
            Input::Pixels(pixels) => region(pixels),
            Input::Values(values) => region(bytemuck::cast_slice(values)),
        };
        // All ones are not a number in any of the dtypes.
        let arena = region(&vec![0xff; plan.arena_bytes()]);
        let scratch = region(&vec![0xff; scratch_bytes(plan)]);
        Self {
            memory: Memory {
                bytes,
                dtype: plan.dtype(),
            },
            constants: offsets
                .into_iter()
                .map(|(id, o)| (id, weights + o as u64))
                .collect(),
            input,
            arena,
            scratch,
        }
    }

    /// Whether the range is within the step's operands, or within its result if it is written.
    fn belongs(&self, plan: &Plan, step: &Step, access: &Access) -> bool {
        let within = |start: u64, bytes: usize| {
            access.address >= start && access.address + access.bytes as u64 <= start + bytes as u64
        };
        let buffer = |id| {
            let buffer = plan.buffer(id);
            within(self.arena + buffer.offset as u64, buffer.bytes)
        };
        let operand = |operand: &Operand| match *operand {
            Operand::Input => within(self.input, (self.arena - self.input) as usize),
            Operand::Constant(id) => {
                let len = plan.graph().value(id).constant.as_ref().unwrap().len();
                within(self.constants[&id], len * plan.dtype().size())
            }
            Operand::Buffer(id) => buffer(id),
        };
        // One launch computes attention and the statistics of its softmax, which is the next step's result.
        let next = plan.steps().get(step.node + 1);
        let statistics = next.filter(|next| matches!(plan.node(next).op, Op::AttentionStatistics(_)));
        // Attention that rotates reads the table of the step before.
        let rope = rotation(plan, step).map_or(&[][..], |(step, _)| &step.inputs[..]);
        access.bytes == 0
            || buffer(step.output)
            || statistics.is_some_and(|step| buffer(step.output))
            || within(self.scratch, scratch_bytes(plan))
            || (!access.written && step.inputs.iter().chain(rope).any(operand))
    }

    fn run(mut self, plan: &Plan) -> Vec<(OutputKind, Vec<f32>)> {
        for step in plan.steps() {
            for call in self.calls(plan, step) {
                self.memory.call(&call);
            }
        }
        self.outputs(plan)
    }

    /// The calls of a step, which are checked to access nothing else than its operands and result.
    fn calls(&self, plan: &Plan, step: &Step) -> Vec<Call> {
        let addresses = Addresses {
            input: self.input,
            constants: &self.constants,
            steps: &HashMap::new(),
            float8: None,
            sparse: &HashMap::new(),
            arena: self.arena,
            scratch: self.scratch,
        };
        let calls = lower(plan, step, addresses).unwrap().into_iter();
        let calls: Vec<Call> = calls.flat_map(unfused).collect();
        for call in &calls {
            for access in accesses(call, plan.dtype().size()) {
                assert!(self.belongs(plan, step, &access), "{call:?}: {access:?}");
            }
        }
        calls
    }

    fn outputs(&self, plan: &Plan) -> Vec<(OutputKind, Vec<f32>)> {
        let values = |&(kind, _, id): &(OutputKind, _, _)| {
            let buffer = plan.buffer(id);
            let at = self.arena as usize + buffer.offset;
            (
                kind,
                unpack(&self.memory.bytes[at..at + buffer.bytes], buffer.dtype),
            )
        };
        plan.outputs().iter().map(values).collect()
    }
}

const VIT: Vit = Vit {
    image: 21,
    patch: 4,
    dim: 24,
    heads: 3,
    depth: 2,
    classes: 7,
    projection: Projection::Packed,
    head: Head::ClassToken,
    registers: 0,
    layer_scale: false,
    swiglu: false,
    patch_positions: false,
    pixels: true,
};

fn check(graph: Graph, dtype: DType, tolerance: f64) {
    check_with(graph, dtype, Optimizations::default(), tolerance);
}

fn check_with(graph: Graph, dtype: DType, optimizations: Optimizations, tolerance: f64) {
    let passes = Passes {
        fold_normalize: dtype == DType::F32,
        whole_vectors: dtype.size() == 2,
        optimizations,
        ..Passes::default()
    };
    check_passes(graph, dtype, passes, tolerance);
}

fn check_passes(graph: Graph, dtype: DType, passes: Passes, tolerance: f64) {
    let graph = Arc::new(optimize(graph, &passes).unwrap().0);
    for batch in [1, 3] {
        let image: usize = graph.value(graph.input()).shape.iter().product();
        let pixels: Vec<u8> = (0..batch * image).map(|i| (i * 7919 % 256) as u8).collect();
        let values: Vec<f32> = pixels.iter().map(|&v| f32::from(v) / 64.0 - 2.0).collect();
        let input = match graph.value(graph.input()).dtype {
            DType::U8 => Input::Pixels(&pixels),
            _ => Input::Values(&values),
        };
        let plan = Plan::new(graph.clone(), batch, dtype).unwrap();
        let outputs = Host::new(&plan, input).run(&plan);
        let expected = interpret(&graph, batch, input).unwrap();
        assert_eq!(outputs.len(), expected.len());
        for ((kind, output), (expected_kind, expected)) in outputs.iter().zip(&expected) {
            assert_eq!(kind, expected_kind);
            assert_close(output, expected.as_slice().unwrap(), tolerance);
        }
    }
}

/// A patch embedding, then what a tail makes of its tokens `[B,25,24]`.
fn small(tail: impl FnOnce(&mut Graph, ValueId) -> ValueId) -> Graph {
    let mut graph = Graph::new("small", [1, VIT.image, VIT.image, 3], DType::U8);
    let normalize = Normalize {
        scale: [0.02, 0.018, 0.017],
        shift: [-2.1, -2.0, -1.8],
    };
    let image = graph.input();
    let x = graph
        .push(Role::Patch, "normalize", Op::Normalize(normalize), [image])
        .unwrap();
    let weight = constant(&mut graph, "patch.weight", &[24, 3, 4, 4]);
    let bias = constant(&mut graph, "patch.bias", &[24]);
    let conv = PatchConv {
        patch: [4, 4],
        bias: true,
    };
    let x = graph
        .push(Role::Patch, "patch", Op::PatchConv(conv), [x, weight, bias])
        .unwrap();
    let out = tail(&mut graph, x);
    graph.set_output(OutputKind::Embedding, out);
    graph
}

fn constant(graph: &mut Graph, name: &str, shape: &[usize]) -> ValueId {
    let len = shape.iter().product();
    let values: Vec<f32> = (0..len)
        .map(|i| ((i * 7919 + 13) % 199) as f32 / 995.0 - 0.1)
        .collect();
    graph.constant(name, Tensor::from_f32(shape, values).unwrap())
}

#[test]
fn whole_models_equal_the_reference_in_every_dtype() {
    let variants = [
        VIT,
        Vit {
            projection: Projection::Separate { key_bias: false },
            head: Head::Mean,
            layer_scale: true,
            swiglu: true,
            registers: 3,
            patch_positions: true,
            ..VIT
        },
        Vit {
            head: Head::AttentionPool,
            pixels: false,
            ..VIT
        },
        Vit {
            projection: Projection::Separate { key_bias: true },
            head: Head::Distilled,
            ..VIT
        },
    ];
    for vit in variants {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            // A value of a narrow type goes through about ten roundings a block, which add up at random.
            let roundings = if dtype == DType::F32 {
                1.0
            } else {
                (10.0 * vit.depth as f64).sqrt()
            };
            check(vit.random(1), dtype, roundings * tolerance(dtype, 4 * vit.dim));
            // Biases, activations and residuals are roundings of their own then, as are scores: twice as many.
            let tolerance = roundings * 2f64.sqrt() * tolerance(dtype, 4 * vit.dim);
            check_with(vit.random(1), dtype, Optimizations::NONE, tolerance);
        }
    }
}

/// Mixers: transposed alone, with a scale, a residual or a gate, and affine maps; fused and not.
#[test]
fn models_that_mix_tokens_equal_the_reference_in_every_dtype() {
    for name in ["timm_mixer", "timm_gmixer", "timm_resmlp", "timm_gmlp"] {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/golden")
            .join(name);
        let graph = model::load(&directory, &LoadOptions::default()).unwrap().graph;
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            // As those of a Vision Transformer of two blocks, whose widest layer has 60 channels.
            let roundings = if dtype == DType::F32 { 1.0 } else { 20f64.sqrt() };
            check(graph.clone(), dtype, roundings * tolerance(dtype, 96));
            let tolerance = roundings * 2f64.sqrt() * tolerance(dtype, 96);
            check_with(graph.clone(), dtype, Optimizations::NONE, tolerance);
        }
    }
}

/// Two ranks in lock step, each in memory of its own; the host sums their parts.
#[test]
fn shards_compute_what_the_whole_model_does() {
    let vit = Vit {
        heads: 2,
        swiglu: true,
        layer_scale: true,
        ..VIT
    };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        // As for a whole model, with the roundings of each sum and its parts.
        let roundings = if dtype == DType::F32 {
            1.0
        } else {
            (16.0 * vit.depth as f64).sqrt()
        };
        let tolerance = roundings * tolerance(dtype, 4 * vit.dim);
        let passes = Passes {
            fold_normalize: dtype == DType::F32,
            ..Passes::default()
        };
        let graph = optimize(vit.random(1), &passes).unwrap().0;
        let pixels: Vec<u8> = (0..2 * VIT.image * VIT.image * 3)
            .map(|i| (i * 7919 % 256) as u8)
            .collect();
        let expected = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
        let plan = |rank| Plan::new(Arc::new(shard(&graph, rank, 2).unwrap()), 2, dtype).unwrap();
        let plans = [plan(0), plan(1)];
        let mut hosts = plans
            .each_ref()
            .map(|plan| Host::new(plan, Input::Pixels(&pixels)));
        let mut sums = 0;
        for step in 0..plans[0].steps().len() {
            let calls = [0, 1].map(|rank| hosts[rank].calls(&plans[rank], &plans[rank].steps()[step]));
            assert_eq!(calls[0].len(), calls[1].len());
            for pair in calls[0].iter().zip(&calls[1]) {
                let (Call::AllReduce(call), Call::AllReduce(_)) = pair else {
                    hosts[0].memory.call(pair.0);
                    hosts[1].memory.call(pair.1);
                    continue;
                };
                sums += 1;
                for index in 0..call.bytes() / dtype.size() {
                    let mut sum = 0.0;
                    for (host, call) in hosts.iter().zip([pair.0, pair.1]) {
                        let Call::AllReduce(call) = call else {
                            continue;
                        };
                        sum += host.memory.get(call.from, index);
                    }
                    for (host, call) in hosts.iter_mut().zip([pair.0, pair.1]) {
                        let Call::AllReduce(call) = call else {
                            continue;
                        };
                        host.memory.set(call.to, index, sum);
                    }
                }
                for (host, call) in hosts.iter_mut().zip([pair.0, pair.1]) {
                    let Call::AllReduce(call) = call else {
                        continue;
                    };
                    if let Some(kernel) = call.follows().unwrap() {
                        host.memory.call(&kernel.into());
                    }
                }
            }
        }
        assert_eq!(sums, 2 * VIT.depth);
        for (host, plan) in hosts.iter().zip(&plans) {
            for ((_, output), (_, expected)) in host.outputs(plan).iter().zip(&expected) {
                assert_close(output, expected.as_slice().unwrap(), tolerance);
            }
        }
    }
}

#[test]
fn pooled_vectors_are_put_side_by_side() {
    for dtype in [DType::F32, DType::F16] {
        let graph = small(|graph, x| {
            let pool =
                |graph: &mut Graph, name, pool| graph.push(Role::Other, name, Op::Pool(pool), [x]).unwrap();
            let first = pool(graph, "first", Pool::Token(2));
            let mean = pool(graph, "mean", Pool::Mean { skip: 1 });
            let x = graph
                .push(Role::Other, "concat", Op::ConcatChannels, [first, mean])
                .unwrap();
            let weight = constant(graph, "weight", &[5, 48]);
            let most = pool(graph, "most", Pool::Max { skip: 3 });
            let y = graph
                .push(Role::Other, "head", Op::Linear(Linear::default()), [x, weight])
                .unwrap();
            graph
                .push(Role::Other, "both", Op::ConcatChannels, [y, most])
                .unwrap()
        });
        check(graph, dtype, 4.0 * tolerance(dtype, 48));
    }
}

/// With an activation before it, a residual that the result overwrites needs memory elsewhere.
#[test]
fn a_residual_in_place_survives_an_activation() {
    let graph = small(|graph, x| {
        let weight = constant(graph, "weight", &[24, 24]);
        let bias = constant(graph, "bias", &[24]);
        let linear = Linear {
            bias: true,
            activation: Some(Activation::QuickGelu),
            residual: true,
            rounding: None,
        };
        // The residual is read nowhere else, the operand is.
        let y = graph.push(Role::Other, "twice", Op::MulScalar(2.0), [x]).unwrap();
        let y = graph
            .push(Role::Other, "fc", Op::Linear(linear), [x, weight, bias, y])
            .unwrap();
        graph
            .push(Role::Other, "pool", Op::Pool(Pool::Mean { skip: 0 }), [y])
            .unwrap()
    });
    let optimized = Arc::new(optimize(graph.clone(), &Passes::default()).unwrap().0);
    let plan = Plan::new(optimized, 2, DType::F32).unwrap();
    assert_eq!(scratch_bytes(&plan), 2 * 25 * 24 * 4);
    check(graph, DType::F32, 4.0 * tolerance(DType::F32, 48));
}

/// In one launch with attention where that is fused, and in f32 whatever the dtype.
#[test]
fn statistics_of_attention_come_with_its_result() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for fused_attention in [true, false] {
            let passes = Passes {
                fold_normalize: dtype == DType::F32,
                attention_statistics: true,
                optimizations: Optimizations {
                    fused_attention,
                    ..Optimizations::default()
                },
                ..Passes::default()
            };
            let nodes = VIT.random(1).nodes().len();
            check_passes(VIT.random(1), dtype, passes, model_tolerance(dtype, nodes));
            let graph = Arc::new(optimize(VIT.random(1), &passes).unwrap().0);
            let plan = Plan::new(graph, 2, dtype).unwrap();
            let host = Host::new(&plan, Input::Pixels(&[]));
            let mut statistics = 0;
            for step in plan.steps() {
                if let Op::AttentionStatistics(_) = plan.node(step).op {
                    statistics += 1;
                    let buffer = plan.buffer(step.output);
                    assert_eq!((buffer.dtype, buffer.bytes), (DType::F32, 2 * 3 * 26 * 3 * 4));
                    assert_eq!(host.calls(&plan, step).is_empty(), fused_attention);
                }
            }
            assert_eq!(statistics, VIT.depth);
        }
    }
}

/// Heads that no fused kernel takes: from one operand, from two, and of one query that all images share.
#[test]
fn wide_heads_are_gemms_and_a_softmax() {
    const HEADS: usize = 2;
    const HEAD_DIM: usize = 132;
    const CHANNELS: usize = HEADS * HEAD_DIM;
    const TOKENS: usize = (VIT.image / 4).pow(2);
    for (operands, with_bias) in [
        (AttentionOperands::PackedQkv, false),
        (AttentionOperands::PackedKv, false),
        (AttentionOperands::Separate, false),
        (AttentionOperands::PackedQkv, true),
        (AttentionOperands::PackedKv, true),
    ] {
        let graph = small(|graph, x| {
            let linear = |graph: &mut Graph, name: &str, parts: usize| {
                let weight = constant(graph, &format!("{name}.weight"), &[parts * CHANNELS, 24]);
                graph
                    .push(Role::Other, name, Op::Linear(Linear::default()), [x, weight])
                    .unwrap()
            };
            let inputs = match operands {
                AttentionOperands::PackedQkv => vec![linear(graph, "qkv", 3)],
                AttentionOperands::PackedKv => {
                    let latent = constant(graph, "latent", &[1, 1, CHANNELS]);
                    vec![latent, linear(graph, "kv", 2)]
                }
                AttentionOperands::Separate => ["q", "k", "v"].map(|name| linear(graph, name, 1)).to_vec(),
            };
            let attention = Attention {
                heads: HEADS,
                head_dim: HEAD_DIM,
                scale: 0.7,
                operands,
                first_key: 0,
                key_mask: false,
                bias: with_bias,
                causal: false,
                float8: None,
            };
            let mut inputs = inputs;
            if with_bias {
                let queries = if operands == AttentionOperands::PackedKv {
                    1
                } else {
                    TOKENS
                };
                inputs.push(constant(graph, "bias", &[HEADS, queries, TOKENS]));
            }
            let y = graph
                .push(Role::Other, "attention", Op::Attention(attention), inputs)
                .unwrap();
            graph
                .push(Role::Other, "pool", Op::Pool(Pool::Mean { skip: 0 }), [y])
                .unwrap()
        });
        for dtype in [DType::F32, DType::F16] {
            check(graph.clone(), dtype, 4.0 * tolerance(dtype, HEAD_DIM));
        }
    }
}

/// Of 15 tokens: in 16 bits their rows are padded to 16.
#[test]
fn tokens_are_mixed_in_rows_of_whole_vectors() {
    for name in ["timm_mixer", "timm_gmixer", "timm_resmlp", "timm_gmlp"] {
        let model = rotary::golden(name);
        let nodes = model.nodes().len();
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            check(model.clone(), dtype, model_tolerance(dtype, nodes));
        }
    }
}

/// Rotary models call one kernel for rotation and attention where the result is the attention's alone.
#[test]
fn rotations_are_part_of_attention() {
    for (name, fused, apart) in [
        ("timm_vit_rope", 2, 0),
        ("timm_vit_rope_mixed_ape", 2, 0),
        ("timm_dinov3", 2, 0),
        ("timm_eva02", 2, 0),
        // Queries and keys are rotated by steps of their own.
        ("timm_sapiens2", 0, 3),
    ] {
        let model = rotary::golden(name);
        let pixels = rotary::pixels(&model);
        // Where nothing is fused, or the result does not overwrite its operand, they are kernels of their own.
        for (fusion, memory_reuse) in [(true, true), (true, false), (false, true)] {
            let passes = Passes {
                optimizations: Optimizations {
                    fusion,
                    memory_reuse,
                    ..Optimizations::default()
                },
                ..Passes::default()
            };
            let graph = Arc::new(optimize(model.clone(), &passes).unwrap().0);
            let expected = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
            let plan = Plan::new(graph, 2, DType::F32).unwrap();
            let host = Host::new(&plan, Input::Pixels(&pixels));
            let steps = plan.steps().iter();
            let calls: Vec<Call> = steps.flat_map(|step| host.calls(&plan, step)).collect();
            let count = |of: fn(&KernelCall) -> bool| {
                let is = |call: &&Call| matches!(call, Call::Kernel(kernel) if of(kernel));
                calls.iter().filter(is).count()
            };
            let rotating = count(|kernel| matches!(kernel, KernelCall::AttentionRope(_)));
            let rotations = count(|kernel| matches!(kernel, KernelCall::Rope(_)));
            match fusion && memory_reuse {
                true => assert_eq!([rotating, rotations], [fused, apart], "{name}"),
                false => assert!(rotating == 0 && rotations > 0, "{name}"),
            }
            for ((_, output), (_, expected)) in host.run(&plan).iter().zip(&expected) {
                assert_close(
                    output,
                    expected.as_slice().unwrap(),
                    16.0 * tolerance(DType::F32, 48),
                );
            }
        }
    }
}

#[test]
fn what_is_not_optimised_is_refused() {
    let graph = Arc::new(VIT.random(1));
    let plan = Plan::new(graph, 1, DType::F32).unwrap();
    let addresses = Addresses {
        input: 1,
        constants: &HashMap::new(),
        steps: &HashMap::new(),
        float8: None,
        sparse: &HashMap::new(),
        arena: 1,
        scratch: 1,
    };
    let error = lower(&plan, &plan.steps()[0], addresses).unwrap_err();
    assert!(error.contains("passes"), "{error}");
}
