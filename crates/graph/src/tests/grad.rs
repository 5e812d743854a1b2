//! All derivatives against central differences in double precision, along random directions.

mod detection;
mod moved;

use std::collections::HashMap;

use crate::array::Array;
use crate::grad::differentiate;
use crate::op::{
    Activation, ActivationBackward, Add, Affine, Attention, AttentionOperands, BatchMatMul, Concat,
    ContrastiveKind, ContrastiveLoss, Conv, ConvTranspose, Coordinates, DistillationKind, DistillationLoss,
    Dropout, Elementwise, Gradients, GraphBuilder, Interpolate, InterpolationKernel, LayerNorm, Linear, Loss,
    LossKind, MatMul, Mul, MulScalar, Normalize, Op, OpError, PatchConv, PatchExtract, PixelLayout, Pool,
    Prepend, Reduce, ReduceKind, RelativeBias, RmsNorm, Rope, RopePairs, Scale, ScaleImages, SwiGlu,
    SwiGluNorm, Tokens,
};
use crate::tensor::{DType, Tensor};
use crate::{Graph, Node, OutputKind, Role, ValueId, evaluate, grad};

/// Returns reproducible values between −1 and 1.
fn noise(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn array(shape: &[usize], seed: u64) -> Array {
    Array::new(shape, noise(shape.iter().product(), seed)).unwrap()
}

fn dot(x: &Array, y: &Array) -> f64 {
    x.values().iter().zip(y.values()).map(|(x, y)| x * y).sum()
}

fn placeholder(graph: &mut Graph, name: &str, shape: &[usize]) -> ValueId {
    let zeros = vec![0.0; shape.iter().product()];
    graph.constant(name, Tensor::from_f32(shape, zeros).unwrap())
}

fn vjp(
    builder: &mut dyn GraphBuilder,
    node: &Node,
    gradients: &[Option<ValueId>],
) -> Result<Gradients, OpError> {
    node.op.vjp(builder, node.values(), gradients)
}

type Known = HashMap<ValueId, Array>;

fn compute(graph: &Graph, known: &Known, id: ValueId) -> Array {
    let mut values = evaluate(graph, |id| known.get(&id), &[id]).unwrap();
    values[id.index()].take().unwrap()
}

/// Compares `gradient` with a finite difference. `gradient` is the derivative of the dot product of `output` and `direction` with respect
/// to `wrt`. The difference is along a random direction of `wrt`.
fn assert_derivative(
    graph: &Graph,
    known: &Known,
    (output, direction): (ValueId, &Array),
    (wrt, gradient): (ValueId, &Array),
    what: &str,
) {
    assert_eq!(gradient.shape(), known[&wrt].shape(), "{what}");
    for seed in [101, 102] {
        let along = array(gradient.shape(), seed);
        let value = |step: f64| {
            let mut moved = known.clone();
            let values = moved.get_mut(&wrt).unwrap().values_mut().iter_mut();
            values.zip(along.values()).for_each(|(x, a)| *x += step * a);
            dot(&compute(graph, &moved, output), direction)
        };
        let got = dot(gradient, &along);
        // Fourth order in the step: the formula has an error of about 1e-12, the subtraction 1e-15 / 1e-4.
        let h = 1e-4;
        let expected = (8.0 * (value(h) - value(-h)) - (value(2.0 * h) - value(-2.0 * h))) / (12.0 * h);
        let size = dot(gradient, gradient).sqrt() * dot(&along, &along).sqrt();
        let error = (got - expected).abs();
        assert!(
            error <= 1e-8 * size.max(1e-2),
            "{what}: {got}, expected {expected}, off by {error:e}"
        );
    }
}

/// Checks the derivatives of `op` with respect to the operands `derived`, and that the other operands have none. Operands have these
/// shapes, and random values unless they are in `given`.
fn check_given(op: impl Into<Op>, shapes: &[&[usize]], derived: &[usize], given: &[(usize, Array)]) {
    let op = op.into();
    let what = format!("{op} of {shapes:?}");
    let mut graph = Graph::new("test", [1, 3, 1, 1], DType::F32);
    let (mut operands, mut known) = (Vec::new(), Known::new());
    for (index, shape) in shapes.iter().enumerate() {
        let id = placeholder(&mut graph, &format!("operand {index}"), shape);
        operands.push(id);
        let given = given.iter().find(|(of, _)| *of == index);
        let noise = || array(shape, index as u64 + 1);
        known.insert(id, given.map_or_else(noise, |(_, array)| array.clone()));
    }
    let output = graph.push(Role::Other, "op", op, operands.clone()).unwrap();
    let shape = graph.value(output).shape.clone();
    let direction = array(&shape, 50);
    let seed = placeholder(&mut graph, "seed", &shape);
    known.insert(seed, direction.clone());
    let gradients = differentiate(&mut graph, [output, seed], &operands, &vjp).unwrap();
    graph.verify().unwrap();
    for (index, &operand) in operands.iter().enumerate() {
        let gradient = gradients[operand.index()];
        assert_eq!(
            gradient.is_some(),
            derived.contains(&index),
            "{what}: operand {index}"
        );
        if let Some(gradient) = gradient {
            let gradient = if gradient == seed {
                direction.clone()
            } else {
                compute(&graph, &known, gradient)
            };
            let what = format!("{what}: operand {index}");
            assert_derivative(&graph, &known, (output, &direction), (operand, &gradient), &what);
        }
    }
}

fn check(op: impl Into<Op>, shapes: &[&[usize]], derived: &[usize]) {
    check_given(op, shapes, derived, &[]);
}

const WIDTHS: [usize; 4] = [1, 63, 64, 65];

const ACTIVATIONS: [Activation; 6] = [
    Activation::GeluErf,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Silu,
    Activation::Relu,
    Activation::Tanh,
];

#[test]
fn elementwise_ops() {
    for d in WIDTHS {
        for activation in ACTIVATIONS {
            check(activation, &[&[2, 3, d]], &[0]);
        }
        check(MulScalar(-1.5), &[&[2, d]], &[0]);
        check(Scale, &[&[2, 3, d], &[d]], &[0, 1]);
        check(Affine, &[&[2, 3, d], &[d], &[d]], &[0, 1, 2]);
        check(SwiGlu, &[&[2, 3, 2 * d]], &[0]);
        for y in [&[2, 3, d][..], &[1, 3, d]] {
            check(Add, &[&[2, 3, d], y], &[0, 1]);
            check(Mul, &[&[2, 3, d], y], &[0, 1]);
        }
        check(Mul, &[&[2, 3, d], &[d]], &[0, 1]);
    }
}

#[test]
fn a_secant_is_the_function_divided_by_its_argument() {
    for activation in ACTIVATIONS {
        let secant = ActivationBackward {
            activation,
            secant: true,
            sums: false,
        };
        for x in noise(50, 3).into_iter().map(|x| 5.0 * x) {
            let error = (secant.slope(x) * x - activation.apply(x)).abs();
            assert!(error < 1e-14, "{activation:?} at {x}: {error:e}");
        }
        let near = secant.slope(1e-9f64);
        assert!(activation == Activation::Relu || (secant.slope(0.0) - near).abs() < 1e-8);
    }
}

#[test]
fn norms_of_rows_and_of_heads() {
    for (d, groups) in [(1, 1), (63, 1), (64, 1), (65, 1), (5, 3)] {
        for epsilon in [1e-6, 0.5] {
            let x = [2, 3, groups * d];
            check(LayerNorm { epsilon }, &[&x, &[d], &[d]], &[0, 1, 2]);
            check(RmsNorm { epsilon }, &[&x, &[d]], &[0, 1]);
        }
    }
}

#[test]
fn linear_layers_and_products() {
    for (k, n) in [(1, 1), (63, 65), (65, 64)] {
        for activation in ACTIVATIONS.map(Some).into_iter().chain([None]) {
            for (bias, residual) in [(false, false), (true, false), (true, true), (false, true)] {
                let spec = Linear {
                    bias,
                    activation,
                    residual,
                    rounding: None,
                };
                let mut shapes: Vec<&[usize]> = vec![&[2, 3, 0], &[0, 0]];
                let (x, weight, result) = ([2, 3, k], [n, k], [2, 3, n]);
                (shapes[0], shapes[1]) = (&x, &weight);
                shapes.extend(bias.then_some(&weight[..1]));
                shapes.extend(residual.then_some(&result[..]));
                let all: Vec<usize> = (0..shapes.len()).collect();
                check(spec, &shapes, &all);
            }
        }
        check(MatMul::default(), &[&[2, 3, k], &[k, n]], &[0, 1]);
        check(
            MatMul {
                transpose_a: true,
                ..MatMul::default()
            },
            &[&[2, 3, k], &[2, 3, n]],
            &[0, 1],
        );
    }
}

#[test]
fn losses_and_factors_of_images() {
    for kind in [
        LossKind::CrossEntropy,
        LossKind::BinaryCrossEntropy,
        LossKind::MeanSquaredError,
    ] {
        check(Loss(kind), &[&[3, 5], &[3, 5]], &[0]);
    }
    check(ScaleImages { column: 1 }, &[&[3, 2, 4], &[3, 2]], &[0]);
    let dropout = Dropout {
        probability: 0.4,
        site: 2,
    };
    check(dropout, &[&[3, 5, 7], &[3, 2]], &[0]);
}

#[test]
fn losses_of_students_and_of_pairs() {
    for kind in [DistillationKind::Soft, DistillationKind::Hard] {
        let op = DistillationLoss {
            base: LossKind::BinaryCrossEntropy,
            kind,
            alpha: 0.3,
            temperature: 2.5,
        };
        check(op, &[&[3, 5][..]; 4], &[0, 1]);
    }
    check(
        ContrastiveLoss(ContrastiveKind::InfoNce),
        &[&[4, 4], &[1]],
        &[0, 1],
    );
    let operands: [&[usize]; 3] = [&[4, 4], &[1], &[1]];
    check(ContrastiveLoss(ContrastiveKind::Sigmoid), &operands, &[0, 1, 2]);
}

#[test]
fn biases_by_relative_position() {
    let op = RelativeBias {
        grid: [2, 3],
        class_token: false,
        shift: None,
    };
    check(op, &[&[15, 2]], &[0]);
    let with_class_token = RelativeBias {
        class_token: true,
        ..op
    };
    check(with_class_token, &[&[18, 2]], &[0]);
    let shifted = RelativeBias {
        shift: Some([1, 1]),
        ..op
    };
    check(shifted, &[&[15, 2]], &[0]);
}

#[test]
fn products_of_matrices() {
    for transpose_a in [false, true] {
        for transpose_b in [false, true] {
            let a = if transpose_a { [2, 1, 4, 3] } else { [2, 1, 3, 4] };
            let b = if transpose_b { [5, 6, 4] } else { [5, 4, 6] };
            let op = BatchMatMul {
                transpose_a,
                transpose_b,
            };
            check(op, &[&a, &b], &[0, 1]);
            check(op, &[&a[2..], &b[1..]], &[0, 1]);
        }
    }
}

#[test]
fn rotary_positions() {
    for pairs in [RopePairs::Interleaved, RopePairs::Halves] {
        for (heads, head_dim, groups, rotated) in [(1, 2, 1, 1), (3, 4, 3, 2), (2, 6, 2, 1)] {
            let spec = Rope {
                heads,
                head_dim,
                rotated,
                pairs,
            };
            let width = heads * head_dim;
            for (places, table) in [(4, head_dim), (3, width)] {
                check(spec, &[&[2, 4, groups * width], &[1, places, table]], &[0]);
            }
        }
    }
}

#[test]
fn pooling_and_tokens() {
    for d in WIDTHS {
        for pool in [
            Pool::Token(0),
            Pool::Token(2),
            Pool::Mean { skip: 0 },
            Pool::Mean { skip: 2 },
            Pool::Max { skip: 0 },
            Pool::Max { skip: 1 },
        ] {
            check(pool, &[&[2, 3, d]], &[0]);
        }
        check(Concat { axis: 1 }, &[&[2, d], &[2, 3]], &[0, 1]);
        check(Prepend, &[&[2, 3, d]], &[0]);
        check(Prepend, &[&[1, 1, d], &[1, 4, d], &[2, 3, d]], &[0, 1, 2]);
        let tokens = |prefix, position| Tokens { prefix, position };
        check(tokens(false, false), &[&[2, 3, d]], &[0]);
        check(tokens(true, false), &[&[2, 3, d], &[1, 2, d]], &[0, 1]);
        check(tokens(false, true), &[&[2, 3, d], &[1, 3, d]], &[0, 1]);
        check(
            tokens(true, true),
            &[&[2, 3, d], &[1, 2, d], &[1, 3, d]],
            &[0, 1, 2],
        );
    }
}

#[test]
fn patches_and_pixels() {
    let normalize = Normalize {
        scale: [0.1, 0.2, 0.3],
        shift: [1.0, 2.0, 3.0],
    };
    check(normalize, &[&[2, 4, 6, 3]], &[0]);
    // One patch, whole patches, and pixels beyond the last patch.
    for image in [[2, 3], [4, 6], [5, 7]] {
        for normalize in [None, Some(normalize)] {
            for layout in [PixelLayout::Hwc, PixelLayout::Chw] {
                let shape = match layout {
                    PixelLayout::Hwc => [2, image[0], image[1], 3],
                    PixelLayout::Chw => [2, 3, image[0], image[1]],
                };
                let spec = PatchExtract {
                    patch: [2, 3],
                    layout,
                    normalize,
                };
                check(spec, &[&shape], &[0]);
            }
        }
        for bias in [false, true] {
            let spec = PatchConv { patch: [2, 3], bias };
            let shapes: [&[usize]; 3] = [&[2, 3, image[0], image[1]], &[5, 3, 2, 3], &[5]];
            let count = 2 + usize::from(bias);
            check(spec, &shapes[..count], &[0, 1, 2][..count]);
        }
    }
}

#[test]
fn convolutions_and_interpolations() {
    let strided = Conv {
        stride: [2, 3],
        dilation: [1, 2],
        padding: [[1, 0], [0, 2]],
        bias: true,
        ..Conv::new([3, 2])
    };
    let fused = Conv {
        padding: [[1; 2]; 2],
        bias: true,
        activation: Some(Activation::Tanh),
        residual: true,
        ..Conv::new([3, 3])
    };
    let (x, weight) = ([2, 7, 9, 3], [4, 3, 2, 3]);
    check(strided, &[&x, &weight, &[4]], &[0, 1, 2]);
    check(
        fused,
        &[&[2, 4, 5, 2], &[3, 3, 3, 2], &[3], &[2, 4, 5, 3]],
        &[0, 1, 2, 3],
    );
    let transposed = ConvTranspose {
        stride: [2, 3],
        dilation: [1, 2],
        padding: [[1, 0], [2, 1]],
        output_padding: [1, 3],
        bias: true,
        ..ConvTranspose::new([3, 2])
    };
    check(transposed, &[&[2, 3, 4, 3], &weight, &[4]], &[0, 1, 2]);
    for (kernel, coordinates, size) in [
        (InterpolationKernel::Linear, Coordinates::AlignCorners, [7, 10]),
        (InterpolationKernel::Linear, Coordinates::HalfPixel, [3, 9]),
        (InterpolationKernel::Cubic(-0.75), Coordinates::HalfPixel, [8, 2]),
    ] {
        let op = Interpolate {
            size,
            scale: None,
            kernel,
            coordinates,
            antialias: false,
            exclude_outside: false,
        };
        check(op, &[&[2, 4, 5, 3]], &[0]);
    }
}

#[test]
fn attention_with_every_attribute() {
    let key_mask = Array::new([2, 5], [1.0, 0.0, 1.0, 1.0, 0.0].repeat(2)).unwrap();
    for (heads, head_dim) in [(1, 1), (2, 3), (3, 8)] {
        let c = heads * head_dim;
        let (x, kv, qkv) = ([2, 5, c], [2, 5, 2 * c], [2, 5, 3 * c]);
        let of_operands: [(AttentionOperands, Vec<&[usize]>, usize); 6] = [
            (AttentionOperands::PackedQkv, vec![&qkv], 5),
            (AttentionOperands::Separate, vec![&x, &x, &x], 5),
            (AttentionOperands::Separate, vec![&[2, 4, 0], &x, &x], 4),
            (AttentionOperands::PackedKv, vec![&x, &kv], 5),
            // Queries shared by all images, and queries per image.
            (AttentionOperands::PackedKv, vec![&[1, 4, 0], &kv], 4),
            (AttentionOperands::Separate, vec![&[2, 0], &x, &x], 1),
        ];
        for (operands, shapes, queries) in of_operands {
            for (bias, causal, masked, first_key) in [
                (false, false, false, 0),
                (true, false, false, 0),
                (false, true, false, 0),
                (true, true, false, 0),
                (false, false, true, 0),
                (true, false, true, 0),
                (false, false, false, 2),
                (true, false, false, 2),
            ] {
                if causal && queries != 5 {
                    continue;
                }
                for statistics in [false, true] {
                    let spec = Attention {
                        heads,
                        head_dim,
                        scale: 0.7,
                        operands,
                        first_key,
                        key_mask: masked,
                        bias,
                        causal,
                        statistics,
                    };
                    // 0 in a shape is the number of channels.
                    let mut all: Vec<Vec<usize>> = shapes.iter().map(|shape| shape.to_vec()).collect();
                    all.iter_mut().flatten().filter(|n| **n == 0).for_each(|n| *n = c);
                    all.extend(bias.then(|| vec![heads, queries, 5]));
                    let derived: Vec<usize> = (0..all.len()).collect();
                    all.extend(masked.then(|| vec![2, 5]));
                    let given = masked.then(|| (derived.len(), key_mask.clone()));
                    let all: Vec<&[usize]> = all.iter().map(Vec::as_slice).collect();
                    check_given(spec, &all, &derived, given.as_slice());
                }
            }
        }
    }
}

#[test]
fn a_query_that_sees_no_key_has_no_gradient() {
    let spec = Attention {
        heads: 1,
        head_dim: 2,
        scale: 0.7,
        key_mask: true,
        ..Attention::default()
    };
    let none = Array::zeros(vec![2, 3]);
    check_given(spec, &[&[2, 3, 6], &[2, 3]], &[0], &[(1, none)]);
}

#[test]
fn a_fused_op_without_a_derivative_is_named() {
    let mut graph = Graph::of_tokens("test", [3, 4]);
    let (w, b) = (
        placeholder(&mut graph, "w", &[2]),
        placeholder(&mut graph, "b", &[2]),
    );
    let op = SwiGluNorm {
        epsilon: 1e-6,
        padding: 0,
    };
    let input = graph.input();
    let y = graph.push(Role::Ffn, "gate", op, [input, w, b]).unwrap();
    graph.set_output(OutputKind::Tokens, y);
    let error = grad(&graph, y, &[input]).unwrap_err().to_string();
    assert_eq!(
        error,
        "node `gate`: swiglu_norm has no derivative. Differentiate the graph before it is optimised"
    );
    let unused = placeholder(&mut graph, "unused", &[2]);
    let error = grad(&graph, y, &[unused]).unwrap_err().to_string();
    assert_eq!(
        error,
        "node `unused`: `gate` does not depend on it, or has no derivative with respect to it"
    );
}

/// Returns a Vision Transformer block on four patches and a class token, with its logits and its weights.
fn vit() -> (Graph, ValueId, Vec<ValueId>) {
    let mut graph = Graph::new("vit", [1, 3, 4, 6], DType::F32);
    let mut weights = Vec::new();
    let mut weight = |graph: &mut Graph, name: &str, shape: &[usize]| {
        weights.push(placeholder(graph, name, shape));
        weights[weights.len() - 1]
    };
    let conv = PatchConv {
        patch: [2, 3],
        bias: true,
    };
    let (w, b) = (
        weight(&mut graph, "conv.w", &[6, 3, 2, 3]),
        weight(&mut graph, "conv.b", &[6]),
    );
    let input = graph.input();
    let x = graph.push(Role::Patch, "conv", conv, [input, w, b]).unwrap();
    let class = weight(&mut graph, "class", &[1, 1, 6]);
    let x = graph.push(Role::Patch, "prepend", Prepend, [class, x]).unwrap();
    let positions = weight(&mut graph, "positions", &[1, 5, 6]);
    let x = graph.push(Role::Patch, "position", Add, [x, positions]).unwrap();
    let (w, b) = (
        weight(&mut graph, "norm.w", &[6]),
        weight(&mut graph, "norm.b", &[6]),
    );
    let norm = LayerNorm { epsilon: 1e-5 };
    let y = graph.push(Role::Qkv, "norm", norm, [x, w, b]).unwrap();
    let linear = Linear {
        bias: true,
        ..Linear::default()
    };
    let (w, b) = (
        weight(&mut graph, "qkv.w", &[18, 6]),
        weight(&mut graph, "qkv.b", &[18]),
    );
    let y = graph.push(Role::Qkv, "qkv", linear, [y, w, b]).unwrap();
    let attention = Attention {
        heads: 2,
        head_dim: 3,
        scale: 0.6,
        ..Attention::default()
    };
    let y = graph.push(Role::Attention, "attention", attention, [y]).unwrap();
    let x = graph.push(Role::Attention, "residual", Add, [x, y]).unwrap();
    let x = graph.push(Role::Ffn, "gelu", Activation::GeluErf, [x]).unwrap();
    let x = graph.push(Role::Other, "pool", Pool::Token(0), [x]).unwrap();
    let (w, b) = (
        weight(&mut graph, "head.w", &[7, 6]),
        weight(&mut graph, "head.b", &[7]),
    );
    let logits = graph.push(Role::Other, "head", linear, [x, w, b]).unwrap();
    graph.set_output(OutputKind::Logits, logits);
    (graph, logits, weights)
}

/// Each image has a mean of its own, which all of its elements are multiplied by.
#[test]
fn a_number_of_each_image_has_its_own_gradient() {
    let mut graph = Graph::of_values("means", "x", [1, 5], DType::F32).unwrap();
    let x = graph.input();
    let mean = Reduce {
        kind: ReduceKind::Mean,
        axes: vec![1],
        keep: true,
    };
    let mean = graph.push(Role::Other, "mean", mean, [x]).unwrap();
    let product = Elementwise::binary(|x, mean| x * mean).unwrap();
    let product = graph.push(Role::Other, "product", product, [x, mean]).unwrap();
    graph.set_output(OutputKind::Logits, product);
    let backward = grad(&graph, product, &[x]).unwrap();
    let gradient = backward.outputs()[1].1;
    for batch in [1, 3] {
        let known: Known = [(x, array(&[batch, 5], 9))].into();
        let found = evaluate(&backward, |id| known.get(&id), &[gradient]).unwrap();
        let ones = Array::new([batch, 5], vec![1.0; 5 * batch]).unwrap();
        let found = found[gradient.index()].as_ref().unwrap();
        assert_derivative(
            &graph,
            &known,
            (product, &ones),
            (x, found),
            "product with the mean",
        );
    }
}

#[test]
fn a_model_is_differentiated_at_any_batch_size() {
    let (graph, logits, weights) = vit();
    let wrt: Vec<ValueId> = weights.iter().copied().chain([graph.input()]).collect();
    let backward = grad(&graph, logits, &wrt).unwrap();
    backward.verify().unwrap();
    // The nodes only compute values that a gradient needs.
    assert_eq!(backward.outputs().len(), 1 + wrt.len());
    let id = |name: &str| {
        backward
            .ids()
            .find(|&id| backward.value(id).name == name)
            .unwrap()
    };
    for batch in [1, 2, 3] {
        let (mut known, mut known_backward) = (Known::new(), Known::new());
        for (seed, &value) in wrt.iter().enumerate() {
            let mut shape = graph.value(value).shape.clone();
            if value == graph.input() {
                shape[0] = batch;
            }
            let values = array(&shape, seed as u64 + 20);
            known_backward.insert(id(&graph.value(value).name), values.clone());
            known.insert(value, values);
        }
        let ones = Array::new([batch, 7], vec![1.0; 7 * batch]).unwrap();
        let outputs: Vec<ValueId> = backward.outputs().iter().map(|&(_, id)| id).collect();
        let results = evaluate(&backward, |id| known_backward.get(&id), &outputs).unwrap();
        for (&(kind, gradient), &value) in backward.outputs()[1..].iter().zip(&wrt) {
            let gradient = results[gradient.index()].as_ref().unwrap();
            let what = format!("{kind:?} of {} at batch {batch}", graph.value(value).name);
            assert_derivative(&graph, &known, (logits, &ones), (value, gradient), &what);
        }
    }
}
