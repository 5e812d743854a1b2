//! Each kernel against the reference implementation, as a graph of a single op.

use std::sync::Arc;

use super::run_guarded;
use crate::exec::{CpuExecutor, constant_bytes};
use crate::graph::plan::Plan;
use crate::graph::{Graph, Role};
use crate::ops::{
    Activation, Add, Affine, Attention, AttentionOperands, Combine, Concat, LayerNorm, Linear, MulScalar,
    Normalize, Op, PatchConv, PatchExtract, PixelLayout, Pool, Prepend, RmsNorm, Rope, RopePairs, Rounding,
    Scale, SwiGlu, SwiGluNorm, Tokens, Transpose,
};
use crate::reference::{self, Array, assert_close, op_tolerance};
use crate::tensor::{DType, Input, Tensor};

const ACTIVATIONS: [Activation; 6] = [
    Activation::GeluErf,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Silu,
    Activation::Relu,
    Activation::Tanh,
];

/// Returns uniform values in [−1, 1) from a linear congruential generator.
fn random(shape: &[usize], seed: u32) -> Tensor {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_f32(shape, values).unwrap()
}

fn scaled(tensor: &Tensor, factor: f32) -> Tensor {
    let values: Vec<f32> = tensor.to_f32().iter().map(|v| v * factor).collect();
    Tensor::from_f32(tensor.shape(), values).unwrap()
}

/// Compares the last result of `op` with the reference: on constants, then on buffers that the op may overwrite, with 1 and 3 threads. The
/// operands `parameters` stay constants.
fn check_op(op: &Op, operands: &[Tensor], parameters: std::ops::Range<usize>) {
    let arrays: Vec<Array> = operands.iter().map(Array::from).collect();
    let arrays: Vec<&Array> = arrays.iter().collect();
    let last = op.eval(&arrays).unwrap().len() - 1;
    let tolerance = op.tolerance(last, &arrays, DType::F32);
    check_op_within(tolerance, op, operands, parameters);
}

/// Returns an attention op with statistics as the last result, which the tests check.
fn with_statistics(spec: Attention) -> Op {
    Op::Attention(Attention {
        statistics: true,
        ..spec
    })
}

fn check_op_within(tolerance: f64, op: &Op, operands: &[Tensor], parameters: std::ops::Range<usize>) {
    let arrays: Vec<Array> = operands.iter().map(Array::from).collect();
    let expected = op
        .eval(&arrays.iter().collect::<Vec<_>>())
        .unwrap()
        .pop()
        .unwrap();
    let mut results = Vec::new();
    for in_buffers in [false, true] {
        let mut graph = Graph::new("op", [1, 1, 1, 3], DType::U8);
        let mut inputs = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            let mut id = graph.constant(format!("operand {i}"), operand.clone());
            if in_buffers && !parameters.contains(&i) {
                let name = format!("buffer {i}");
                id = graph
                    .push(Role::Other, name, Op::MulScalar(MulScalar(1.0)), [id])
                    .unwrap();
            }
            inputs.push(id);
        }
        graph.push(Role::Other, "op", op.clone(), inputs).unwrap();
        let graph = Arc::new(graph);
        let plan = Plan::new(graph.clone(), 1, DType::F32).unwrap();
        let takes_over = |op: &Op| {
            matches!(
                op,
                Op::Add(Add)
                    | Op::Scale(Scale)
                    | Op::Affine(Affine)
                    | Op::LayerNorm(_)
                    | Op::RmsNorm(_)
                    | Op::Rope(_)
                    | Op::Activation(_)
                    | Op::MulScalar(_)
            ) || matches!(
                op,
                Op::Linear(Linear { residual: true, .. }) | Op::Transpose(Transpose { combine: Some(_), .. })
            )
        };
        let last = plan.steps().last().unwrap();
        assert_eq!(last.in_place.is_some(), in_buffers && takes_over(op), "{op}");
        for threads in [1, 3] {
            let executor = CpuExecutor::new(&graph, Some(threads)).unwrap();
            results.push(run_guarded(&executor, &plan, Input::Pixels(&[0; 3])));
        }
    }
    let shapes: Vec<&[usize]> = operands.iter().map(Tensor::shape).collect();
    if let Err(mismatch) = reference::check_close(&results[0], expected.values(), tolerance) {
        panic!("{op} of {shapes:?}: {mismatch}");
    }
    for result in &results[1..] {
        let same = result
            .iter()
            .zip(&results[0])
            .all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{op} of {shapes:?} depends on threads or place");
    }
}

#[test]
fn linear_with_every_tail() {
    // Sizes around the kernels' tiles of 6 and 32, the depth block of 256 and the row blocks.
    for (m, k, n) in [
        (1, 1, 1),
        (1, 300, 33),
        (5, 16, 10),
        (63, 48, 31),
        (65, 257, 32),
        (197, 64, 100),
        (257, 512, 65),
    ] {
        let activations = ACTIVATIONS.into_iter().map(Some).chain([None]);
        for (i, activation) in activations.enumerate() {
            let (bias, residual) = (i % 2 == 0, i % 3 != 1);
            let mut operands = vec![random(&[1, m, k], 1), scaled(&random(&[n, k], 2), 0.2)];
            if bias {
                operands.push(random(&[n], 3));
            }
            if residual {
                operands.push(random(&[1, m, n], 4));
            }
            for rounding in [None, Some(Rounding::Bf16)] {
                let spec = Linear {
                    bias,
                    activation,
                    residual,
                    rounding,
                };
                let parameters = 1..2 + usize::from(bias);
                check_op(&Op::Linear(spec), &operands, parameters);
            }
        }
    }
}

/// A weight takes two bytes per element with each 16-bit dtype.
#[test]
fn a_weight_in_bf16_takes_its_bytes() {
    let bytes = |rounding, dtype| {
        let mut graph = Graph::new("op", [1, 1, 1, 3], DType::U8);
        let [x, weight] =
            [([1, 8], "x"), ([5, 8], "weight")].map(|(shape, name)| graph.constant(name, random(&shape, 1)));
        let spec = Linear {
            rounding,
            ..Linear::default()
        };
        graph
            .push(Role::Other, "op", Op::Linear(spec), [x, weight])
            .unwrap();
        constant_bytes(&graph, dtype)
    };
    for (rounding, dtype, expected) in [
        (None, DType::F32, 4),
        (None, DType::F16, 2),
        (Some(Rounding::Bf16), DType::F32, 2),
        (Some(Rounding::Bf16), DType::F16, 2),
    ] {
        assert_eq!(bytes(rounding, dtype), 8 * 4 + 5 * 8 * expected);
    }
}

#[test]
fn linear_takes_a_computed_weight() {
    let operands = [random(&[3, 1, 48], 1), random(&[20, 48], 2)];
    for rounding in [None, Some(Rounding::Bf16)] {
        let spec = Linear {
            rounding,
            ..Linear::default()
        };
        check_op(&Op::Linear(spec), &operands, 0..0);
    }
}

#[test]
fn attention_of_every_shape() {
    let sizes = [
        (1, 64, 64),
        (63, 32, 16),
        (64, 16, 32),
        (65, 72, 72),
        (197, 64, 64),
        (257, 80, 80),
        (600, 88, 16),
    ];
    for (n, large, head_dim) in sizes {
        let head_dim = if n < 100 { large } else { head_dim };
        for (heads, batch) in [(1, 2), (3, 1)] {
            let c = heads * head_dim;
            let spec = |operands| {
                Op::Attention(Attention {
                    heads,
                    head_dim,
                    scale: 4.0 / (head_dim as f32).sqrt(),
                    operands,
                    ..Attention::default()
                })
            };
            let qkv = random(&[batch, n, 3 * c], 1);
            if let Op::Attention(spec) = spec(AttentionOperands::PackedQkv) {
                let causal = Attention { causal: true, ..spec };
                check_op(&Op::Attention(causal), std::slice::from_ref(&qkv), 0..0);
                let statistics = [spec, causal].map(with_statistics);
                let check = |op| check_op(op, std::slice::from_ref(&qkv), 0..0);
                statistics.iter().for_each(check);
            }
            check_op(&spec(AttentionOperands::PackedQkv), &[qkv], 0..0);
            let kv = random(&[batch, n, 2 * c], 2);
            let q = random(&[batch, 7, c], 3);
            check_op(&spec(AttentionOperands::PackedKv), &[q, kv.clone()], 0..0);
            let shared = random(&[1, 1, c], 4);
            check_op(&spec(AttentionOperands::PackedKv), &[shared, kv.clone()], 0..0);
            let one = random(&[batch, c], 5);
            if let Op::Attention(spec) = spec(AttentionOperands::PackedKv) {
                let operands = [one.clone(), kv.clone()];
                check_op(&with_statistics(spec), &operands, 0..0);
            }
            check_op(&spec(AttentionOperands::PackedKv), &[one, kv], 0..0);
            let separate = [
                random(&[1, n + 1, c], 6),
                random(&[batch, n, c], 7),
                random(&[batch, n, c], 8),
            ];
            check_op(&spec(AttentionOperands::Separate), &separate, 0..0);
            for first_key in [0, n / 3] {
                let biased = Attention {
                    heads,
                    head_dim,
                    scale: 2.0 / (head_dim as f32).sqrt(),
                    operands: AttentionOperands::PackedQkv,
                    first_key,
                    key_mask: false,
                    bias: true,
                    causal: false,
                    ..Attention::default()
                };
                let operands = [random(&[batch, n, 3 * c], 9), random(&[heads, n, n], 10)];
                check_op(&Op::Attention(biased), &operands, 1..2);
                check_op(&with_statistics(biased), &operands, 1..2);
            }
        }
    }
}

#[test]
fn attention_survives_large_scores() {
    let spec = Attention {
        heads: 2,
        head_dim: 16,
        scale: 1.0,
        operands: AttentionOperands::PackedQkv,
        ..Attention::default()
    };
    // Scores are in the thousands: without subtracting the maximum, the exponential would overflow. The scores' rounding errors, ε/2 of
    // thousands, pass through the exponential to the result.
    let qkv = scaled(&random(&[2, 65, 96], 1), 30.0);
    check_op_within(1e-3, &Op::Attention(spec), &[qkv], 0..0);
}

#[test]
fn layer_norm_of_every_width() {
    for (n, d) in [(1, 1), (65, 3), (197, 48), (63, 65), (257, 768), (2, 4100)] {
        // The mean is far from zero, as in residual streams.
        let x: Vec<f32> = random(&[1, n, d], 1).to_f32().iter().map(|v| v + 3.0).collect();
        let x = Tensor::from_f32([1, n, d], x).unwrap();
        let operands = [x, random(&[d], 2), random(&[d], 3)];
        check_op(&Op::LayerNorm(LayerNorm { epsilon: 1e-6 }), &operands, 1..3);
        check_op(&Op::RmsNorm(RmsNorm { epsilon: 1e-5 }), &operands[..2], 1..2);
    }
}

#[test]
fn a_norm_of_each_head() {
    for (n, heads, d) in [(1, 2, 1), (65, 3, 5), (197, 12, 64), (3, 7, 80)] {
        let operands = [random(&[1, n, heads * d], 1), random(&[d], 2), random(&[d], 3)];
        check_op(&Op::LayerNorm(LayerNorm { epsilon: 1e-6 }), &operands, 1..3);
        check_op(&Op::RmsNorm(RmsNorm { epsilon: 1e-6 }), &operands[..2], 1..2);
    }
}

#[test]
fn elementwise_ops() {
    for shape in [[1, 1, 1], [2, 65, 33], [3, 197, 48]] {
        let x = random(&shape, 1);
        let d = shape[2];
        check_op(&Op::Add(Add), &[x.clone(), random(&shape, 2)], 0..0);
        let shared = random(&[1, shape[1], d], 3);
        check_op(&Op::Add(Add), &[x.clone(), shared], 0..0);
        check_op(&Op::Scale(Scale), &[x.clone(), random(&[d], 4)], 1..2);
        check_op(
            &Op::Affine(Affine),
            &[x.clone(), random(&[d], 4), random(&[d], 6)],
            1..3,
        );
        check_op(&Op::MulScalar(MulScalar(-0.3)), std::slice::from_ref(&x), 0..0);
        for activation in ACTIVATIONS {
            check_op(&Op::Activation(activation), &[scaled(&x, 6.0)], 0..0);
        }
        let gates = random(&[shape[0], shape[1], 2 * d], 5);
        check_op(&Op::SwiGlu(SwiGlu), std::slice::from_ref(&gates), 0..0);
        let operands = [gates, random(&[d], 7), random(&[d], 8)];
        check_op(
            &Op::SwiGluNorm(SwiGluNorm {
                epsilon: 1e-6,
                padding: 0,
            }),
            &operands,
            1..3,
        );
    }
}

#[test]
fn transpositions() {
    for [batch, rows, columns] in [[1, 1, 1], [2, 65, 33], [3, 16, 197], [1, 40, 7]] {
        for (pad, crop) in [(0, 0), (7, 0), (0, columns / 4), (18, columns / 2)] {
            for scale in [false, true] {
                for combine in [None, Some(Combine::Add), Some(Combine::Multiply)] {
                    let mut operands = vec![random(&[batch, rows, columns], 1)];
                    operands.extend(scale.then(|| random(&[rows], 2)));
                    operands.extend(combine.map(|_| random(&[batch, columns - crop, rows + pad], 3)));
                    let constants = 1..1 + usize::from(scale);
                    let spec = Transpose {
                        scale,
                        combine,
                        pad,
                        crop,
                    };
                    check_op(&Op::Transpose(spec), &operands, constants);
                }
            }
        }
    }
}

#[test]
fn rotary_positions() {
    for pairs in [RopePairs::Interleaved, RopePairs::Halves] {
        for (batch, tokens, places) in [(1, 1, 1), (2, 63, 63), (3, 65, 60), (2, 197, 196)] {
            let (heads, head_dim) = (3, 22);
            for (groups, rotated, table) in [(3, 2, head_dim), (2, 1, heads * head_dim), (1, 1, head_dim)] {
                let spec = Rope {
                    heads,
                    head_dim,
                    rotated,
                    pairs,
                };
                let x = random(&[batch, tokens, groups * heads * head_dim], 1);
                check_op(&Op::Rope(spec), &[x, random(&[1, places, table], 2)], 1..2);
            }
        }
    }
}

#[test]
fn tokens_and_pooling() {
    for (batch, n, d) in [(1, 1, 1), (3, 64, 33), (2, 197, 16)] {
        let x = random(&[batch, n, d], 1);
        let (prefix, more) = (random(&[1, 2, d], 2), random(&[1, 1, d], 3));
        let position = random(&[1, n, d], 4);
        check_op(&Op::Prepend(Prepend), &[prefix.clone(), more, x.clone()], 0..2);
        check_op(&Op::Prepend(Prepend), std::slice::from_ref(&x), 0..0);
        for (with_prefix, with_position) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut operands = vec![x.clone()];
            operands.extend(with_prefix.then(|| prefix.clone()));
            operands.extend(with_position.then(|| position.clone()));
            let spec = Tokens {
                prefix: with_prefix,
                position: with_position,
            };
            check_op(&Op::Tokens(spec), &operands, 1..3);
        }
        check_op(&Op::Pool(Pool::Token(n - 1)), std::slice::from_ref(&x), 0..0);
        for pool in [Pool::Mean { skip: n / 2 }, Pool::Max { skip: n / 2 }] {
            check_op(&Op::Pool(pool), std::slice::from_ref(&x), 0..0);
        }
        let pair = [random(&[batch, d], 5), random(&[batch, 7], 6)];
        check_op(&Op::Concat(Concat { axis: 1 }), &pair, 0..0);
    }
}

/// Compares `op` on the graph's input with the reference. The input is u8 if `pixels` is true.
fn check_on_image(op: &Op, [batch, h, w]: [usize; 3], pixels: bool, parameters: &[Tensor]) {
    let (shape, dtype) = if pixels {
        ([1, h, w, 3], DType::U8)
    } else {
        ([1, 3, h, w], DType::F32)
    };
    let mut graph = Graph::new("image", shape, dtype);
    let mut inputs = vec![graph.input()];
    for (i, parameter) in parameters.iter().enumerate() {
        inputs.push(graph.constant(format!("parameter {i}"), parameter.clone()));
    }
    graph.push(Role::Patch, "op", op.clone(), inputs).unwrap();
    let graph = Arc::new(graph);
    let plan = Plan::new(graph.clone(), batch, DType::F32).unwrap();
    let executor = CpuExecutor::new(&graph, Some(2)).unwrap();

    let bytes: Vec<u8> = (0..batch * h * w * 3).map(|i| (i * 131 % 251) as u8).collect();
    let values: Vec<f32> = bytes.iter().map(|&b| f32::from(b)).collect();
    let input = if pixels {
        Input::Pixels(&bytes)
    } else {
        Input::Values(&values)
    };
    let result = run_guarded(&executor, &plan, input);
    let image = [batch]
        .into_iter()
        .chain(shape[1..].iter().copied())
        .collect::<Vec<_>>();
    let image = Array::new(image, values.iter().map(|&v| f64::from(v)).collect()).unwrap();
    let parameters: Vec<Array> = parameters.iter().map(Array::from).collect();
    let operands: Vec<&Array> = std::iter::once(&image).chain(&parameters).collect();
    let expected = reference::eval(op, &operands).unwrap();
    let tolerance = op_tolerance(op, &operands, DType::F32);
    assert_close(&result, expected.values(), tolerance);
}

#[test]
fn patches_of_every_layout() {
    let normalize = Normalize {
        scale: [1.0 / 58.0, 1.0 / 57.0, 1.0 / 59.0],
        shift: [-2.1, -2.0, -1.8],
    };
    // An image with a remainder at both edges, an image of a single patch, and one with more patches than a block has.
    for (image, patch) in [([2, 37, 29], [16, 4]), ([1, 8, 8], [8, 8]), ([3, 40, 56], [4, 8])] {
        check_on_image(&Op::Normalize(normalize), image, true, &[]);
        for normalize in [None, Some(normalize)] {
            for (layout, pixels) in [(PixelLayout::Hwc, true), (PixelLayout::Chw, false)] {
                let spec = PatchExtract {
                    patch,
                    layout,
                    normalize,
                };
                check_on_image(&Op::PatchExtract(spec), image, pixels, &[]);
            }
        }
        let parameters = [random(&[10, 3, patch[0], patch[1]], 2), random(&[10], 3)];
        for bias in [false, true] {
            let op = Op::PatchConv(PatchConv { patch, bias });
            check_on_image(&op, image, false, &parameters[..1 + usize::from(bias)]);
        }
    }
}
