//! The calls of whole models, carried out on the host: a GPU's memory is an array here, and each kernel a few plain loops
//! after hip/include/args.h. So operands, strides, orders and in-place results are tested where there is no GPU.

use std::collections::HashMap;
use std::sync::Arc;

use half::{bf16, f16};

use super::constants::{pack, unpack};
use super::lower::{Addresses, Call, lower, scratch_bytes};
use crate::exec::Input;
use crate::graph::plan::{Operand, Plan, Step};
use crate::graph::tests::vit::{Head, Projection, Vit};
use crate::graph::{
    Activation, Attention, AttentionOperands, DType, Graph, Linear, Normalize, Op, OutputKind, Passes,
    PatchConv, Pool, Role, Tensor, ValueId, optimize,
};
use crate::hip::kernels::KernelArguments;
use crate::hip::{Access, Matrix};
use crate::ops::launch::arguments::{
    AddArgs, AttentionArgs, BiasActivationArgs, LayerNormArgs, PatchExtractArgs, PoolArgs, SoftmaxArgs,
    SwiGluArgs, TokensArgs,
};
use crate::reference::{self, assert_close, tolerance};

/// A GPU's memory: address `a` is byte `a`.
struct Memory {
    bytes: Vec<u8>,
    dtype: DType,
}

impl Memory {
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
            DType::F32 | DType::U8 => to.copy_from_slice(&value.to_ne_bytes()),
        }
    }

    /// An operand that may be left out.
    fn optional(&self, address: u64, index: usize, without: f32) -> f32 {
        match address {
            0 => without,
            _ => self.get(address, index),
        }
    }

    fn call(&mut self, call: &Call) {
        match call {
            Call::PatchExtract(a) => self.patch_extract(a, false),
            Call::PatchExtractChw(a) => self.patch_extract(&a.0, true),
            Call::Tokens(a) => self.tokens(a),
            Call::Add(a) => self.add(a),
            Call::LayerNorm(a) => self.layer_norm(a),
            Call::BiasActivation(a) => self.bias_activation(a),
            Call::SwiGlu(a) => self.swiglu(a),
            Call::Attention(a) => self.attention(a),
            Call::Softmax(a) => self.softmax(a),
            Call::Pool(a) => self.pool(a),
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
            Call::CopyRows(copy) => {
                for row in 0..copy.rows {
                    let from = copy.from as usize + row * copy.from_stride;
                    let to = copy.to as usize + row * copy.to_stride;
                    self.bytes.copy_within(from..from + copy.bytes, to);
                }
            }
        }
    }

    fn patch_extract(&mut self, a: &PatchExtractArgs, chw: bool) {
        let [height, width, ph, pw] = [a.height, a.width, a.patch_height, a.patch_width].map(|n| n as usize);
        let (down, across) = (height / ph, width / pw);
        let mut to = 0;
        for image in 0..a.images as usize {
            for patch in 0..down * across {
                for element in 0..3 * ph * pw {
                    let (c, dy, dx) = match chw {
                        true => (element / (ph * pw), element / pw % ph, element % pw),
                        false => (element % 3, element / 3 / pw, element / 3 % pw),
                    };
                    let (y, x) = (patch / across * ph + dy, patch % across * pw + dx);
                    let value = if chw {
                        let at = a.pixels as usize + 4 * (((image * 3 + c) * height + y) * width + x);
                        f32::from_ne_bytes(self.bytes[at..at + 4].try_into().unwrap())
                    } else {
                        self.bytes[a.pixels as usize + ((image * height + y) * width + x) * 3 + c].into()
                    };
                    self.set(a.out, to, value * a.scale[c] + a.shift[c]);
                    to += 1;
                }
            }
        }
    }

    fn tokens(&mut self, a: &TokensArgs) {
        let [tokens, prefixes, d] = [a.tokens, a.prefixes, a.channels].map(|n| n as usize);
        for index in 0..a.images as usize * (prefixes + tokens) * d {
            let (image, token, c) = (
                index / d / (prefixes + tokens),
                index / d % (prefixes + tokens),
                index % d,
            );
            let value = if token < prefixes {
                self.get(a.prefix, token * d + c)
            } else {
                let at = (token - prefixes) * d + c;
                self.get(a.x, image * tokens * d + at) + self.optional(a.position, at, 0.0)
            };
            self.set(a.out, index, value);
        }
    }

    fn add(&mut self, a: &AddArgs) {
        let d = a.channels as usize;
        for index in 0..a.rows as usize * d {
            let (row, c) = (index / d, index % d);
            let gamma = self.optional(a.gamma, c, 1.0);
            let y = match a.y {
                0 => 0.0,
                y => self.get(y, row % a.y_rows as usize * d + c),
            };
            self.set(a.out, index, a.factor * gamma * self.get(a.x, index) + y);
        }
    }

    fn layer_norm(&mut self, a: &LayerNormArgs) {
        assert_eq!((a.residual, a.sum), (0, 0));
        let d = a.channels as usize;
        for row in 0..a.rows as usize {
            let x: Vec<f32> = (0..d).map(|c| self.get(a.x, row * d + c)).collect();
            let mean = x.iter().sum::<f32>() / d as f32;
            let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / d as f32;
            for (c, v) in x.iter().enumerate() {
                let value = (v - mean) / (variance + a.epsilon).sqrt();
                let value = value * self.get(a.weight, c) + self.get(a.bias, c);
                self.set(a.out, row * d + c, value);
            }
        }
    }

    fn bias_activation(&mut self, a: &BiasActivationArgs) {
        let d = a.channels as usize;
        for index in 0..a.rows as usize * d {
            let x = self.get(a.x, index) + self.optional(a.bias, index % d, 0.0);
            let cubic = 0.797_884_6 * (x + 0.044_715 * x * x * x);
            let value = match a.activation {
                0 => x,
                1 => x * 0.5 * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2)),
                2 => x * 0.5 * (1.0 + cubic.tanh()),
                3 => x / (1.0 + (-1.702 * x).exp()),
                4 => x / (1.0 + (-x).exp()),
                5 => x.max(0.0),
                6 => x.tanh(),
                other => panic!("there is no activation {other}"),
            };
            let value = value + self.optional(a.residual, index, 0.0);
            self.set(a.out, index, value);
        }
    }

    fn swiglu(&mut self, a: &SwiGluArgs) {
        let d = a.channels as usize;
        for index in 0..a.rows as usize * d {
            let (row, c) = (index / d, index % d);
            let (gate, value) = (self.get(a.x, row * 2 * d + c), self.get(a.x, row * 2 * d + d + c));
            self.set(a.out, index, gate / (1.0 + (-gate).exp()) * value);
        }
    }

    fn attention(&mut self, a: &AttentionArgs) {
        assert_eq!(
            (a.visible.key_mask, a.visible.left, a.visible.right),
            (0, i32::MAX, i32::MAX)
        );
        let (keys, d) = (a.keys as usize, a.head_dim as usize);
        for image in 0..a.images as usize {
            for head in 0..a.heads as usize {
                let at = |image_stride: u64, token_stride: u32, token: usize, c: usize| {
                    image * image_stride as usize + token * token_stride as usize + head * d + c
                };
                for query in 0..a.queries as usize {
                    let score = |key| {
                        let products = (0..d).map(|c| {
                            self.get(a.q, at(a.q_image, a.q_token, query, c))
                                * self.get(a.k, at(a.k_image, a.k_token, key, c))
                        });
                        a.scale * products.sum::<f32>()
                    };
                    let scores: Vec<f32> = (0..keys).map(score).collect();
                    let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let weights: Vec<f32> = scores.iter().map(|s| (s - top).exp()).collect();
                    let total: f32 = weights.iter().sum();
                    for c in 0..d {
                        let values = weights
                            .iter()
                            .enumerate()
                            .map(|(key, w)| w * self.get(a.v, at(a.v_image, a.v_token, key, c)));
                        let value = values.sum::<f32>() / total;
                        self.set(a.out, at(a.out_image, a.out_token, query, c), value);
                    }
                }
            }
        }
    }

    fn softmax(&mut self, a: &SoftmaxArgs) {
        assert_eq!(
            (a.visible.key_mask, a.visible.left, a.visible.right),
            (0, i32::MAX, i32::MAX)
        );
        let keys = a.keys as usize;
        for row in 0..(a.images * a.heads * a.queries) as usize {
            let scores: Vec<f32> = (0..keys)
                .map(|key| a.scale * self.get(a.x, row * keys + key))
                .collect();
            let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = scores.iter().map(|s| (s - top).exp()).sum();
            for (key, score) in scores.iter().enumerate() {
                self.set(a.out, row * keys + key, (score - top).exp() / total);
            }
        }
    }

    fn pool(&mut self, a: &PoolArgs) {
        let [tokens, d, first] = [a.tokens, a.channels, a.first].map(|n| n as usize);
        for index in 0..a.images as usize * d {
            let (image, c) = (index / d, index % d);
            let x = |token: usize| self.get(a.x, (image * tokens + token) * d + c);
            let rest = (first..tokens).map(x);
            let value = match a.mode {
                0 => x(first),
                1 => rest.sum::<f32>() / (tokens - first) as f32,
                _ => rest.fold(f32::NEG_INFINITY, f32::max),
            };
            self.set(a.out, index, value);
        }
    }
}

/// Every stretch of memory that a kernel's call may touch.
fn accesses(call: &Call, size: usize) -> Vec<Access> {
    let mut all = Vec::new();
    let visit = &mut |access| all.push(access);
    match call {
        Call::PatchExtract(a) => KernelArguments::touch(a, size, visit),
        Call::PatchExtractChw(a) => a.touch(size, visit),
        Call::Tokens(a) => a.touch(size, visit),
        Call::Add(a) => a.touch(size, visit),
        Call::LayerNorm(a) => a.touch(size, visit),
        Call::BiasActivation(a) => a.touch(size, visit),
        Call::SwiGlu(a) => a.touch(size, visit),
        Call::Attention(a) => a.touch(size, visit),
        Call::Softmax(a) => a.touch(size, visit),
        Call::Pool(a) => a.touch(size, visit),
        Call::Gemm { .. } | Call::CopyRows(_) => {}
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
        let (weights, offsets) = pack(plan.graph(), plan.dtype());
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

    /// Whether the stretch is a part of the step's operands, or of its result if it is written.
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
        access.bytes == 0
            || buffer(step.output)
            || within(self.scratch, scratch_bytes(plan))
            || (!access.written && step.inputs.iter().any(operand))
    }

    fn run(mut self, plan: &Plan) -> Vec<(OutputKind, Vec<f32>)> {
        for step in plan.steps() {
            let addresses = Addresses {
                input: self.input,
                constants: &self.constants,
                arena: self.arena,
                scratch: self.scratch,
            };
            for call in lower(plan, step, addresses).unwrap() {
                for access in accesses(&call, plan.dtype().size()) {
                    assert!(self.belongs(plan, step, &access), "{call:?}: {access:?}");
                }
                self.memory.call(&call);
            }
        }
        let values = |&(kind, _, id): &(OutputKind, _, _)| {
            let buffer = plan.buffer(id);
            let at = self.arena as usize + buffer.offset;
            (
                kind,
                unpack(&self.memory.bytes[at..at + buffer.bytes], plan.dtype()),
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
    let passes = Passes {
        fold_normalize: dtype == DType::F32,
        ..Passes::default()
    };
    let graph = Arc::new(optimize(graph, &passes).unwrap().0);
    for batch in [1, 3] {
        let pixels: Vec<u8> = (0..batch * VIT.image * VIT.image * 3)
            .map(|i| (i * 7919 % 256) as u8)
            .collect();
        let values: Vec<f32> = pixels.iter().map(|&v| f32::from(v) / 64.0 - 2.0).collect();
        let input = match graph.value(graph.input()).dtype {
            DType::U8 => Input::Pixels(&pixels),
            _ => Input::Values(&values),
        };
        let plan = Plan::new(graph.clone(), batch, dtype).unwrap();
        let outputs = Host::new(&plan, input).run(&plan);
        let expected = reference::run(&graph, batch, input).unwrap();
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
fn whole_models_equal_the_oracle_in_every_dtype() {
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

/// With an activation before it, a residual in the result's place needs memory elsewhere.
#[test]
fn a_residual_in_place_survives_an_activation() {
    let graph = small(|graph, x| {
        let weight = constant(graph, "weight", &[24, 24]);
        let bias = constant(graph, "bias", &[24]);
        let linear = Linear {
            bias: true,
            activation: Some(Activation::QuickGelu),
            residual: true,
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

/// Heads that no fused kernel takes: from one operand, from two, and of one query that all images share.
#[test]
fn wide_heads_are_products_and_a_softmax() {
    const HEADS: usize = 2;
    const HEAD_DIM: usize = 132;
    const CHANNELS: usize = HEADS * HEAD_DIM;
    for operands in [
        AttentionOperands::PackedQkv,
        AttentionOperands::PackedKv,
        AttentionOperands::Separate,
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
            };
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

#[test]
fn what_is_not_optimised_is_refused() {
    let graph = Arc::new(VIT.random(1));
    let plan = Plan::new(graph, 1, DType::F32).unwrap();
    let addresses = Addresses {
        input: 1,
        constants: &HashMap::new(),
        arena: 1,
        scratch: 1,
    };
    let error = lower(&plan, &plan.steps()[0], addresses).unwrap_err();
    assert!(error.contains("passes"), "{error}");
}
