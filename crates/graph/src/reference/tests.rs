//! The reference against known values, and its ops against each other.

use super::*;
use crate::op::{
    Activation, Add, Affine, Attention, AttentionOperands, Combine, Concat, LayerNorm, Linear, MulScalar,
    Normalize, Op, PatchConv, PatchExtract, PixelLayout, Pool, Prepend, RmsNorm, Rope, RopePairs, Scale,
    SwiGlu, Tokens, Transpose,
};

fn array(shape: &[usize], values: &[f64]) -> Array {
    Array::new(shape, values.to_vec()).unwrap()
}

/// A quarter turn maps (a, b) to (−b, a). The first token and the channels beyond the first head do not change.
#[test]
fn a_rotation_turns_the_pairs_of_the_last_tokens() {
    let x = array(
        &[1, 2, 8],
        &[
            1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0,
        ],
    );
    // The first pair turns by a quarter, the second by a half.
    let table = array(&[1, 1, 4], &[0.0, -1.0, 1.0, 0.0]);
    for (pairs, turned) in [
        (RopePairs::Interleaved, [-2.0, 1.0, -3.0, -4.0]),
        (RopePairs::Halves, [-3.0, -2.0, 1.0, -4.0]),
    ] {
        let spec = Rope {
            heads: 1,
            head_dim: 4,
            rotated: 1,
            pairs,
        };
        let y = apply(&Op::Rope(spec), &[&x, &table]);
        assert_eq!(y.values()[..8], x.values()[..8]);
        assert_eq!(y.values()[8..12], turned);
        assert_eq!(y.values()[12..], x.values()[12..]);
    }
    let spec = Rope {
        heads: 1,
        head_dim: 4,
        rotated: 3,
        pairs: RopePairs::Halves,
    };
    let error = eval(&Op::Rope(spec), &[&x, &table]).unwrap_err();
    assert_eq!(error.to_string(), "x has 8 channels, expected at least 3 times 4");
    let long = array(&[1, 3, 4], &[0.0; 12]);
    let spec = Rope { rotated: 1, ..spec };
    let error = eval(&Op::Rope(spec), &[&x, &long]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`table` has shape [1, 3, 4], expected at most 2 tokens"
    );
}

/// Returns distinct, exactly representable values.
fn ramp(shape: &[usize]) -> Array {
    let len: usize = shape.iter().product();
    let values = (0..len).map(|i| ((i * 37) % 64) as f64 / 16.0 - 2.0).collect();
    Array::new(shape, values).unwrap()
}

fn apply(op: &Op, operands: &[&Array]) -> Array {
    eval(op, operands).unwrap()
}

#[test]
fn activations_have_their_tabulated_values() {
    let x = array(&[4], &[0.0, 1.0, -1.0, -10.0]);
    // Φ(1) = 0.841344746068542949, Φ(−10) = 7.61985302416052607e-24, σ(1) = 0.731058578630004879.
    let cases = [
        (
            Activation::GeluErf,
            [
                0.0,
                0.841_344_746_068_542_9,
                -0.158_655_253_931_457_05,
                -7.619_853_024_160_526e-23,
            ],
        ),
        (
            Activation::Silu,
            [
                0.0,
                0.731_058_578_630_004_9,
                -0.268_941_421_369_995_1,
                -4.539_786_870_243_44e-4,
            ],
        ),
        (Activation::Relu, [0.0, 1.0, 0.0, 0.0]),
        (
            Activation::Tanh,
            [
                0.0,
                0.761_594_155_955_764_9,
                -0.761_594_155_955_764_9,
                -0.999_999_995_877_692_8,
            ],
        ),
    ];
    for (activation, expected) in cases {
        let y = apply(&Op::Activation(activation), &[&x]);
        for (y, expected) in y.values().iter().zip(expected) {
            assert!(
                (y - expected).abs() <= 1e-14 * expected.abs(),
                "{activation:?}: {y:e} {expected:e}"
            );
        }
    }
    // The approximations stay within their known distance from the exact GELU.
    let x = ramp(&[64]);
    let exact = apply(&Op::Activation(Activation::GeluErf), &[&x]);
    for (activation, distance) in [(Activation::GeluTanh, 5e-4), (Activation::QuickGelu, 2.1e-2)] {
        let y = apply(&Op::Activation(activation), &[&x]);
        let worst = y
            .values()
            .iter()
            .zip(exact.values())
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(
            worst <= distance && worst > distance / 10.0,
            "{activation:?}: {worst:e}"
        );
    }
}

#[test]
fn layer_norm_uses_the_biased_variance() {
    let x = array(&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let (weight, bias) = (
        array(&[4], &[1.0, 1.0, 2.0, 1.0]),
        array(&[4], &[0.0, 0.0, 0.0, 10.0]),
    );
    let y = apply(&Op::LayerNorm(LayerNorm { epsilon: 0.0 }), &[&x, &weight, &bias]);
    // Deviations −1.5 … 1.5 divided by √1.25.
    let unit = 1.0 / 1.25f64.sqrt();
    let expected = [-1.5 * unit, -0.5 * unit, 1.0 * unit, 10.0 + 1.5 * unit];
    assert_close(y.values(), &expected, 1e-15);
}

#[test]
fn rms_norm_subtracts_no_mean_and_norms_each_group_of_channels() {
    // The mean square of 1 and 7 is 25, that of −3 and 1 is 5.
    let x = array(&[1, 4], &[1.0, 7.0, -3.0, 1.0]);
    let y = apply(
        &Op::RmsNorm(RmsNorm { epsilon: 0.0 }),
        &[&x, &array(&[2], &[10.0, 2.0])],
    );
    let root = 5f64.sqrt();
    assert_close(y.values(), &[2.0, 2.8, -30.0 / root, 2.0 / root], 1e-15);
    let all = apply(
        &Op::RmsNorm(RmsNorm { epsilon: 10.0 }),
        &[&x, &array(&[4], &[1.0; 4])],
    );
    assert_close(all.values(), &[0.2, 1.4, -0.6, 0.2], 1e-15);
}

#[test]
fn linear_multiplies_by_the_transposed_weight_and_applies_its_epilogue() {
    let x = array(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let weight = array(&[3, 2], &[1.0, 0.0, 0.0, 1.0, -1.0, -1.0]);
    let bias = array(&[3], &[10.0, 20.0, 1.0]);
    let residual = array(&[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let spec = Linear {
        bias: true,
        activation: Some(Activation::Relu),
        residual: true,
        rounding: None,
    };
    let y = apply(&Op::Linear(spec), &[&x, &weight, &bias, &residual]);
    // x·wᵀ + b = [[11, 22, −2], [13, 24, −6]]; relu; then the residual.
    assert_eq!(y.values(), [12.0, 24.0, 3.0, 17.0, 29.0, 6.0]);
    let y = apply(&Op::Linear(Linear::default()), &[&x, &weight]);
    assert_eq!(y.values(), [1.0, 2.0, -3.0, 3.0, 4.0, -7.0]);
    // Longer than the eight partial sums, and not a multiple of eight.
    let x = array(&[1, 19], &(1..20).map(f64::from).collect::<Vec<_>>());
    let y = apply(
        &Op::Linear(Linear::default()),
        &[&x, &array(&[1, 19], &[1.0; 19])],
    );
    assert_eq!(y.values(), [190.0]);
}

#[test]
fn a_patch_convolution_is_extraction_and_a_linear() {
    let normalize = Normalize {
        scale: [0.5, 0.25, 2.0],
        shift: [-1.0, 0.0, 1.0],
    };
    // 5×7 pixels with patches of 2×3: the last row and the last column are ignored.
    let pixels = ramp(&[2, 5, 7, 3]);
    let weight = ramp(&[4, 3, 2, 3]);
    let bias = ramp(&[4]);
    let patch = [2, 3];
    let x = apply(&Op::Normalize(normalize), &[&pixels]);
    let conv = apply(
        &Op::PatchConv(PatchConv { patch, bias: true }),
        &[&x, &weight, &bias],
    );
    assert_eq!(conv.shape(), [2, 4, 4]);

    let linear = Op::Linear(Linear {
        bias: true,
        ..Linear::default()
    });
    let chw = PatchExtract {
        patch,
        layout: PixelLayout::Chw,
        normalize: None,
    };
    let rows = apply(&Op::PatchExtract(chw), &[&x]);
    let flat = Array::new([4, 18], weight.values().to_vec()).unwrap();
    assert_eq!(apply(&linear, &[&rows, &flat, &bias]), conv);

    let hwc = PatchExtract {
        patch,
        layout: PixelLayout::Hwc,
        normalize: Some(normalize),
    };
    let rows = apply(&Op::PatchExtract(hwc), &[&pixels]);
    let mut permuted = vec![0.0; weight.values().len()];
    for d in 0..4 {
        for c in 0..3 {
            for e in 0..6 {
                permuted[d * 18 + e * 3 + c] = weight.values()[(d * 3 + c) * 6 + e];
            }
        }
    }
    let permuted = Array::new([4, 18], permuted).unwrap();
    assert_eq!(apply(&linear, &[&rows, &permuted, &bias]), conv);
}

#[test]
fn tokens_are_an_addition_and_a_prefix() {
    let (x, position, prefix) = (ramp(&[2, 3, 4]), ramp(&[1, 3, 4]), ramp(&[1, 2, 4]));
    let sum = apply(&Op::Add(Add), &[&x, &position]);
    let expected = apply(&Op::Prepend(Prepend), &[&prefix, &sum]);
    assert_eq!(expected.shape(), [2, 5, 4]);
    assert_eq!(&expected.values()[20..28], prefix.values());
    let spec = Tokens {
        prefix: true,
        position: true,
    };
    assert_eq!(apply(&Op::Tokens(spec), &[&x, &prefix, &position]), expected);
    let spec = Tokens {
        prefix: false,
        position: true,
    };
    assert_eq!(apply(&Op::Tokens(spec), &[&x, &position]), sum);
}

#[test]
fn attention_weighs_the_values_by_softmax() {
    let spec = Attention {
        heads: 1,
        head_dim: 2,
        scale: 0.5,
        operands: AttentionOperands::Separate,
        ..Attention::default()
    };
    let q = array(&[1, 1, 2], &[2.0, 0.0]);
    let k = array(&[2, 2, 2], &[1.0, 5.0, 0.0, -5.0, 3.0, 1.0, 3.0, 2.0]);
    let v = array(&[2, 2, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 3.0, 2.0, 5.0]);
    let y = apply(&Op::Attention(spec), &[&q, &k, &v]);
    // Image 0 has scores 1 and 0. Image 1, with the same query, has equal scores.
    let first = 1.0 / (1.0 + (-1f64).exp());
    assert_close(y.values(), &[first, 1.0 - first, 1.5, 4.0], 1e-15);
    let biased = Attention { bias: true, ..spec };
    let bias = array(&[1, 1, 2], &[0.0, 1.0]);
    // Image 0 has scores 1 and 1. In image 1 the second score is larger by 1.
    let y = apply(&Op::Attention(biased), &[&q, &k, &v, &bias]);
    assert_close(y.values(), &[0.5, 0.5, 1.0 + first, 3.0 + 2.0 * first], 1e-15);
    let of_last = Attention { first_key: 1, ..spec };
    let y = apply(&Op::Attention(of_last), &[&q, &k, &v]);
    assert_close(y.values(), &[0.0, 1.0, 2.0, 5.0], 1e-15);
}

#[test]
fn causal_attention_sees_no_later_key() {
    let spec = Attention {
        heads: 1,
        head_dim: 1,
        scale: 1.0,
        operands: AttentionOperands::Separate,
        first_key: 0,
        key_mask: false,
        bias: false,
        causal: true,
        ..Attention::default()
    };
    let zeros = array(&[1, 3, 1], &[0.0; 3]);
    let v = array(&[1, 3, 1], &[6.0, 2.0, 1.0]);
    let y = apply(&Op::Attention(spec), &[&zeros, &zeros, &v]);
    assert_close(y.values(), &[6.0, 4.0, 3.0], 1e-15);
    let of_last = array(&[1, 1], &[0.0]);
    let shapes = [of_last.shape(), zeros.shape(), v.shape()];
    let error = Op::Attention(spec).shapes(&shapes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "is causal, which takes as many queries as its 3 keys, and no key mask"
    );
}

/// Returns only the statistics of the softmax.
fn statistics(spec: Attention, operands: &[&Array]) -> Array {
    let spec = Attention {
        statistics: true,
        ..spec
    };
    Op::Attention(spec).eval(operands).unwrap().swap_remove(1)
}

/// Computed by hand: even rows, a row with one key, and a row without visible keys.
#[test]
fn statistics_of_attention_by_hand() {
    let spec = Attention {
        heads: 1,
        head_dim: 1,
        scale: 2.0,
        operands: AttentionOperands::Separate,
        ..Attention::default()
    };
    let q = array(&[1, 2, 1], &[0.0, 1.0]);
    let k = array(&[1, 3, 1], &[0.0, 0.0, 0.5 * 2f64.ln()]);
    // Query 1 has scores 0, 0 and ln 2, so probabilities 1/4, 1/4 and 1/2.
    let y = statistics(spec, &[&q, &k, &k]);
    assert_eq!(y.shape(), [1, 1, 2, 3]);
    let (ln2, ln3) = (2f64.ln(), 3f64.ln());
    assert_close(
        y.values(),
        &[ln3, 1.0 / 3.0, ln3, 2.0 * ln2, 0.5, 1.5 * ln2],
        1e-15,
    );
    let causal = Attention { causal: true, ..spec };
    let q = array(&[1, 3, 1], &[1.0, 0.0, 1.0]);
    let y = statistics(causal, &[&q, &k, &k]);
    let expected = [0.0, 1.0, 0.0, ln2, 0.5, ln2, 2.0 * ln2, 0.5, 1.5 * ln2];
    assert_close(y.values(), &expected, 1e-15);
    let spec = Attention {
        statistics: true,
        ..spec
    };
    let results = spec.eval_masked(&[&q, &k, &k], |_, query, _| query != 1).unwrap();
    let y = &results[1];
    assert_eq!(y.values()[3..6], [f64::NEG_INFINITY, 0.0, 0.0]);
}

#[test]
fn packed_attention_is_separate_attention() {
    let (heads, head_dim, n) = (3, 4, 5);
    let c = heads * head_dim;
    let qkv = ramp(&[2, n, 3 * c]);
    let part = |from: usize, to: usize| {
        let values = qkv
            .values()
            .chunks(3 * c)
            .flat_map(|t| t[from..to].to_vec())
            .collect();
        Array::new([2, n, to - from], values).unwrap()
    };
    let (q, k, v, kv) = (part(0, c), part(c, 2 * c), part(2 * c, 3 * c), part(c, 3 * c));
    let op = |operands| {
        Op::Attention(Attention {
            heads,
            head_dim,
            scale: 0.5,
            operands,
            ..Attention::default()
        })
    };
    let expected = apply(&op(AttentionOperands::Separate), &[&q, &k, &v]);
    assert_eq!(apply(&op(AttentionOperands::PackedQkv), &[&qkv]), expected);
    assert_eq!(apply(&op(AttentionOperands::PackedKv), &[&q, &kv]), expected);
}

#[test]
fn the_small_ops_compute_what_they_say() {
    let x = array(&[1, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(apply(&Op::Pool(Pool::Token(1)), &[&x]).values(), [3.0, 4.0]);
    assert_eq!(
        apply(&Op::Pool(Pool::Mean { skip: 1 }), &[&x]).values(),
        [4.0, 5.0]
    );
    let gamma = array(&[2], &[10.0, -1.0]);
    assert_eq!(
        apply(&Op::Scale(Scale), &[&x, &gamma]).values(),
        [10.0, -2.0, 30.0, -4.0, 50.0, -6.0]
    );
    assert_eq!(apply(&Op::MulScalar(MulScalar(0.5)), &[&x]).values()[5], 3.0);
    let shift = array(&[2], &[0.5, -1.0]);
    assert_eq!(
        apply(&Op::Affine(Affine), &[&x, &gamma, &shift]).values(),
        [10.5, -3.0, 30.5, -5.0, 50.5, -7.0]
    );
    let transposed = |scale, combine, more: &[&Array]| {
        let operands: Vec<&Array> = std::iter::once(&x).chain(more.iter().copied()).collect();
        let spec = Transpose {
            scale,
            combine,
            ..Transpose::default()
        };
        apply(&Op::Transpose(spec), &operands)
    };
    assert_eq!(transposed(false, None, &[]).shape(), [1, 2, 3]);
    assert_eq!(
        transposed(false, None, &[]).values(),
        [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]
    );
    let factors = array(&[3], &[1.0, 10.0, -1.0]);
    let other = array(&[1, 2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(
        transposed(true, Some(Combine::Add), &[&factors, &other]).values(),
        [1.0, 31.0, -3.0, 5.0, 44.0, -1.0]
    );
    assert_eq!(
        transposed(false, Some(Combine::Multiply), &[&other]).values(),
        [0.0, 3.0, 10.0, 6.0, 16.0, 30.0]
    );
    let sized = |scale, combine, [pad, crop]: [usize; 2]| {
        Op::Transpose(Transpose {
            scale,
            combine,
            pad,
            crop,
        })
    };
    assert_eq!(
        apply(&sized(false, None, [2, 1]), &[&x]).values(),
        [1.0, 3.0, 5.0, 0.0, 0.0]
    );
    let other = array(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(
        apply(&sized(true, Some(Combine::Add), [1, 1]), &[&x, &factors, &other]).values(),
        [2.0, 32.0, -2.0, 4.0]
    );
    let all = eval(&sized(false, None, [0, 2]), &[&x]).unwrap_err().to_string();
    assert!(all.contains("leaves out 2 of 2 columns"), "{all}");
    let wrong = sized(false, Some(Combine::Add), [0, 0]);
    assert!(
        eval(&wrong, &[&x, &x])
            .unwrap_err()
            .to_string()
            .contains("expected [1, 2, 3]")
    );
    assert!(
        eval(&wrong, &[&x])
            .unwrap_err()
            .to_string()
            .contains("`y` is missing")
    );
    let y = array(&[2, 1], &[7.0, 8.0]);
    let joined = apply(
        &Op::Concat(Concat { axis: 1 }),
        &[&array(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), &y],
    );
    assert_eq!(joined.values(), [1.0, 2.0, 7.0, 3.0, 4.0, 8.0]);
    let gated = apply(&Op::SwiGlu(SwiGlu), &[&array(&[1, 4], &[1.0, 0.0, 3.0, 5.0])]);
    assert_close(gated.values(), &[3.0 * 0.731_058_578_630_004_9, 0.0], 1e-15);
    assert!(
        eval(&Op::Add(Add), &[&x, &y])
            .unwrap_err()
            .to_string()
            .starts_with("cannot add")
    );
}
