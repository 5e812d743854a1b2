//! Forward passes against the interpreter, gradients against differences, sums against outputs.

use super::attribution::{Direction, integrated, propagated};
use super::backward::Rules;
use super::program::Program;
use super::*;
use hipvit::graph::{self, Graph, Passes, Role, interpret};
use hipvit::model::{self, InputKind, LoadOptions};
use hipvit::ops::{
    Activation, Affine, Attention, AttentionOperands, Combine, LayerNorm, Linear, MulScalar, Normalize, Op,
    PatchConv, Pool, RmsNorm, Rope, RopePairs, Scale, SwiGlu, Transpose,
};
use hipvit::tensor::{DType, Input, Tensor};

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

fn noise32(len: usize, seed: u64) -> Vec<f32> {
    noise(len, seed).into_iter().map(|v| v as f32).collect()
}

fn golden(name: &str, input: InputKind) -> Graph {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name);
    let options = LoadOptions {
        input,
        ..LoadOptions::default()
    };
    model::load(&directory, &options).unwrap().graph
}

/// Models of every form: packed and separate Q, K and V, RMS norms, norms of heads and inside branches, parallel blocks and branches,
/// differential attention, rotary positions, SwiGLU, LayerScale, mixers, every pooling, every activation.
const GOLDENS: [&str; 28] = [
    "timm_vit_class_token",
    "timm_vit_avg_pool",
    "timm_vit_max_pool",
    "timm_vit_pre_norm_layer_scale",
    "timm_vit_post_norm",
    "timm_vit_reg4_gap",
    "timm_vit_self_attention_pool",
    "timm_vit_pairs",
    "timm_vit_parallel_qk_norm",
    "timm_vit_parallel_differential",
    "timm_aimv2",
    "timm_beit3",
    "timm_deit_distilled",
    "timm_dinov2_reg4_swiglu",
    "timm_siglip",
    "timm_clip_quickgelu",
    "timm_vit_non_square",
    "timm_radio",
    "hf_clip",
    "hf_dinov2_registers",
    "timm_eva02",
    "timm_vit_rope_mixed_ape",
    "timm_sapiens2",
    "hf_dinov3_model",
    "timm_mixer",
    "timm_gmixer",
    "timm_resmlp",
    "timm_gmlp",
];

fn assert_near(got: f64, expected: f64, tolerance: f64, what: &str) {
    let error = (got - expected).abs();
    assert!(
        error <= tolerance,
        "{what}: {got}, expected {expected}, off by {error:e}"
    );
}

#[test]
fn forward_passes_equal_the_interpreter() {
    for name in GOLDENS {
        for input in [InputKind::PixelValues, InputKind::Pixels] {
            let plain = golden(name, input);
            let (fused, _) = graph::optimize(plain.clone(), &Passes::default()).unwrap();
            let extract = Passes {
                fold_normalize: false,
                whole_vectors: true,
                ..Passes::default()
            };
            let (extracted, _) = graph::optimize(plain.clone(), &extract).unwrap();
            for graph in [plain, fused, extracted] {
                let len: usize = 2 * graph.value(graph.input()).shape.iter().product::<usize>();
                let values = noise32(len, 1);
                let bytes: Vec<u8> = values.iter().map(|v| (v * 100.0 + 128.0) as u8).collect();
                let (wide, input): (Vec<f64>, _) = match input {
                    InputKind::Pixels => (bytes.iter().map(|&v| v.into()).collect(), Input::Pixels(&bytes)),
                    InputKind::PixelValues => {
                        (values.iter().map(|&v| v.into()).collect(), Input::Values(&values))
                    }
                    other => unreachable!("{other:?}"),
                };
                let expected = interpret(&graph, 2, input).unwrap();
                let program = Program::<f64>::new(&graph).unwrap();
                let run = program.run(2, wide).unwrap();
                for ((_, id), (kind, expected)) in graph.outputs().iter().zip(&expected) {
                    let largest = expected.iter().fold(1e-3, |m: f64, v| m.max(v.abs()));
                    for (&got, &expected) in run.value(*id).iter().zip(expected) {
                        assert_near(got, expected, 1e-11 * largest, &format!("{name} {kind:?}"));
                    }
                }
            }
        }
    }
}

/// Checks the derivative of the dot product of the first output with fixed values. The derivative is along a random direction of the input
/// and of the additive constants.
fn assert_gradient(graph: &Graph, name: &str) {
    let program = Program::<f64>::new(graph).unwrap();
    let len: usize = graph.value(graph.input()).shape.iter().product();
    let scale = if graph.value(graph.input()).dtype == DType::U8 {
        100.0
    } else {
        1.0
    };
    let x: Vec<f64> = noise(len, 2).iter().map(|v| scale * v).collect();
    let along: Vec<f64> = noise(len, 3).iter().map(|v| scale * v).collect();
    let (_, output) = graph.outputs()[0];
    let direction = Direction {
        output,
        weights: noise(graph.value(output).shape.iter().product(), 4),
    };
    let value = |step: f64| {
        let moved = x.iter().zip(&along).map(|(x, a)| x + step * a).collect();
        let run = program.run(1, moved).unwrap();
        let values = run.value(output).iter().zip(&direction.weights);
        values.map(|(v, w)| v * w).sum::<f64>()
    };
    let run = program.run(1, x.clone()).unwrap();
    let backward = program.backward(Rules::Gradient, output, false).unwrap();
    let gradients = backward.run(&run, direction.seed(), |_| false).unwrap();
    let gradient = gradients.of(graph.input()).unwrap();
    let got: f64 = gradient.iter().zip(&along).map(|(g, a)| g * a).sum();
    // Fourth order in the step: the formula has an error of about 1e-12, the subtraction 1e-15 / 1e-4.
    let h = 1e-4;
    let expected = (8.0 * (value(h) - value(-h)) - (value(2.0 * h) - value(-2.0 * h))) / (12.0 * h);
    let size = gradient.iter().map(|g| g * g).sum::<f64>().sqrt() * scale * (len as f64).sqrt();
    assert_near(got, expected, 1e-7 * size.max(1e-6), name);
}

#[test]
fn gradients_of_whole_models_equal_differences() {
    for name in GOLDENS {
        for input in [InputKind::PixelValues, InputKind::Pixels] {
            let plain = golden(name, input);
            assert_gradient(&plain, name);
            let (fused, _) = graph::optimize(plain.clone(), &Passes::default()).unwrap();
            assert_gradient(&fused, &format!("{name}, fused"));
            let passes = Passes {
                fold_normalize: false,
                whole_vectors: true,
                ..Passes::default()
            };
            let (extracted, _) = graph::optimize(plain, &passes).unwrap();
            assert_gradient(&extracted, &format!("{name}, normalised during extraction"));
        }
    }
}

/// A graph that turns the pixel values into a few tokens, followed by appended ops.
struct Small(Graph, hipvit::graph::ValueId);

impl Small {
    fn new(channels: usize) -> Self {
        let mut graph = Graph::new("small", [1, 3, 4, 6], DType::F32);
        let input = graph.input();
        let weight = graph.constant(
            "w",
            Tensor::from_f32([channels, 3, 2, 2], noise32(channels * 12, 5)).unwrap(),
        );
        let op = Op::PatchConv(PatchConv {
            patch: [2, 2],
            bias: false,
        });
        let x = graph.push(Role::Patch, "patches", op, [input, weight]).unwrap();
        Self(graph, x)
    }

    fn constant(&mut self, name: &str, shape: &[usize]) -> hipvit::graph::ValueId {
        let values = noise32(shape.iter().product(), 6 + shape.len() as u64);
        self.0.constant(name, Tensor::from_f32(shape, values).unwrap())
    }

    fn check(mut self, op: Op, more: &[hipvit::graph::ValueId]) {
        let name = op.to_string();
        let inputs: Vec<_> = std::iter::once(self.1).chain(more.iter().copied()).collect();
        let y = self.0.push(Role::Other, "op", op, inputs).unwrap();
        self.0.set_output(hipvit::graph::OutputKind::Tokens, y);
        assert_gradient(&self.0, &name);
    }
}

#[test]
fn gradients_of_ops_equal_differences() {
    for activation in [
        Activation::GeluErf,
        Activation::GeluTanh,
        Activation::QuickGelu,
        Activation::Silu,
        Activation::Tanh,
    ] {
        Small::new(4).check(Op::Activation(activation), &[]);
        let mut small = Small::new(4);
        let (w, b) = (small.constant("w2", &[4, 4]), small.constant("b2", &[4]));
        let spec = Linear {
            bias: true,
            activation: Some(activation),
            residual: true,
            rounding: None,
        };
        let x = small.1;
        small.check(Op::Linear(spec), &[w, b, x]);
    }
    Small::new(4).check(Op::SwiGlu(SwiGlu), &[]);
    for (pairs, table) in [(RopePairs::Interleaved, 4), (RopePairs::Halves, 8)] {
        let mut small = Small::new(24);
        let table = small.constant("table", &[1, 2, table]);
        let spec = Rope {
            heads: 2,
            head_dim: 4,
            rotated: 2,
            pairs,
        };
        small.check(Op::Rope(spec), &[table]);
    }
    Small::new(4).check(Op::MulScalar(MulScalar(-1.5)), &[]);
    Small::new(4).check(Op::Pool(Pool::Mean { skip: 1 }), &[]);
    Small::new(4).check(Op::Pool(Pool::Max { skip: 0 }), &[]);
    let mut small = Small::new(4);
    let gamma = small.constant("gamma", &[4]);
    small.check(Op::Scale(Scale), &[gamma]);
    let mut small = Small::new(4);
    let (w, b) = (small.constant("w2", &[4]), small.constant("b2", &[4]));
    small.check(Op::Affine(Affine), &[w, b]);
    let sizes = [[0, 0], [3, 1]];
    for ([pad, crop], scale) in sizes.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        for combine in [None, Some(Combine::Add), Some(Combine::Multiply)] {
            // Six tokens. The second operand depends on the image too.
            let mut small = Small::new(4);
            let mut more: Vec<_> = scale.then(|| small.constant("gamma", &[6])).into_iter().collect();
            if combine.is_some() {
                let op = Op::Transpose(Transpose {
                    pad,
                    crop,
                    ..Transpose::default()
                });
                more.push(small.0.push(Role::Other, "y", op, [small.1]).unwrap());
            }
            let spec = Transpose {
                scale,
                combine,
                pad,
                crop,
            };
            small.check(Op::Transpose(spec), &more);
        }
    }
    let mut small = Small::new(4);
    let (w, b) = (small.constant("w2", &[4]), small.constant("b2", &[4]));
    small.check(Op::LayerNorm(LayerNorm { epsilon: 1e-6 }), &[w, b]);
    let mut small = Small::new(4);
    let w = small.constant("w2", &[4]);
    small.check(Op::RmsNorm(RmsNorm { epsilon: 1e-6 }), &[w]);
    // Two heads, each normalised.
    let mut small = Small::new(6);
    let (w, b) = (small.constant("w2", &[3]), small.constant("b2", &[3]));
    small.check(Op::LayerNorm(LayerNorm { epsilon: 1e-6 }), &[w, b]);
    let mut small = Small::new(6);
    let w = small.constant("w2", &[3]);
    small.check(Op::RmsNorm(RmsNorm { epsilon: 1e-6 }), &[w]);
    let attention = |operands, first_key, bias| {
        Op::Attention(Attention {
            heads: 2,
            head_dim: 2,
            scale: 0.7,
            operands,
            first_key,
            key_mask: false,
            bias,
            causal: false,
            ..Attention::default()
        })
    };
    for first_key in [0, 2] {
        Small::new(12).check(attention(AttentionOperands::PackedQkv, first_key, false), &[]);
        let mut small = Small::new(12);
        let bias = small.constant("bias", &[2, 6, 6]);
        small.check(attention(AttentionOperands::PackedQkv, first_key, true), &[bias]);
    }
    let small = Small::new(4);
    let x = small.1;
    small.check(attention(AttentionOperands::Separate, 1, false), &[x, x]);
}

#[test]
fn contributions_and_constants_sum_to_the_output() {
    for name in GOLDENS {
        let graph = golden(name, InputKind::PixelValues);
        let program = Program::<f64>::new(&graph).unwrap();
        let len: usize = graph.value(graph.input()).shape.iter().product();
        let run = program.run(1, noise(len, 7)).unwrap();
        for &(kind, output) in graph.outputs() {
            let len: usize = graph.value(output).shape.iter().product();
            let direction = Direction {
                output,
                weights: noise(len, 8),
            };
            let attribution = propagated(&run, Method::Conservative, &direction).unwrap();
            let size = attribution.values.iter().map(|v| v.abs()).sum::<f64>()
                + attribution
                    .constants
                    .iter()
                    .map(|c| c.contribution.abs())
                    .sum::<f64>();
            let gap = attribution.gap().unwrap();
            assert!(gap.abs() < 1e-12 * size, "{name} {kind:?}: {gap:e} of {size}");
            // Some contributions belong to pixels, not to constants.
            assert!(attribution.by_pixel().iter().any(|v| v.abs() > 1e-6), "{name}");
        }
    }
}

/// A network without attention or normalisation and with open gates is linear, so that all methods agree.
#[test]
fn methods_agree_on_a_linear_network() {
    let mut small = Small::new(4);
    let (w, b) = (small.constant("w2", &[5, 4]), small.constant("b2", &[5]));
    let spec = Linear {
        bias: true,
        ..Linear::default()
    };
    let (graph, x) = (&mut small.0, small.1);
    let y = graph.push(Role::Ffn, "fc", Op::Linear(spec), [x, w, b]).unwrap();
    let y = graph
        .push(Role::Other, "pool", Op::Pool(Pool::Mean { skip: 0 }), [y])
        .unwrap();
    graph.set_output(hipvit::graph::OutputKind::Embedding, y);
    let program = Program::<f64>::new(graph).unwrap();
    let image = noise32(72, 9);
    let run = program.run(1, image.iter().map(|&v| v.into()).collect()).unwrap();
    let direction = Direction {
        output: y,
        weights: noise(5, 10),
    };
    let by_rules = propagated(&run, Method::Conservative, &direction).unwrap();
    let attnlrp = propagated(&run, Method::AttnLrp, &direction).unwrap();
    let integrated = integrated(&program, &image, &[0.0; 72], &direction, 1).unwrap();
    for other in [attnlrp, integrated] {
        for (a, b) in by_rules.values.iter().zip(&other.values) {
            assert_near(*a, *b, 1e-12, other.method.name());
        }
    }
    // Patches of 2×2 in an image of 4×6.
    let patches = by_rules.by_patch([2, 2]);
    assert_eq!(patches.dim(), (2, 3));
    assert_near(patches.sum(), by_rules.sum(), 1e-12, "patches");
}

#[test]
fn integrated_gradients_are_complete() {
    for name in [
        "timm_vit_class_token",
        "timm_siglip2_tanh",
        "timm_dinov2_reg4_swiglu",
        "timm_gmlp",
    ] {
        let graph = golden(name, InputKind::PixelValues);
        let len: usize = graph.value(graph.input()).shape.iter().product();
        let image = noise32(len, 11);
        let (_, output) = graph.outputs()[0];
        let direction = Direction {
            output,
            weights: noise(graph.value(output).shape.iter().product(), 12),
        };
        let program = Program::<f64>::new(&graph).unwrap();
        let black = vec![-0.5; len];
        let gap = |steps| {
            let attribution = integrated(&program, &image, &black, &direction, steps).unwrap();
            attribution.gap().unwrap().abs() / (attribution.output - attribution.constant.unwrap()).abs()
        };
        let (few, many) = (gap(4), gap(100));
        assert!(many < 1e-4, "{name}: {many:e} with 100 steps");
        assert!(many < few || few < 1e-12, "{name}: {few:e}, then {many:e}");
    }
}

#[test]
fn an_explanation_has_maps_whose_rows_sum_to_one() {
    let explainer = Explainer::new(&hipvit::Session::tinyvit32().unwrap()).unwrap();
    let seven = hipvit::image::open("../../assets/samples/7.png", hipvit::image::Limits::default()).unwrap();
    let explanation = explainer.explain(&seven, None).unwrap();
    assert_eq!(explanation.top[0].label, "seven");
    assert_eq!(explanation.target.to_string(), "class 7, seven");
    let [rows, columns] = explanation.grid;
    let (_, tokens, _) = explanation.attention[0].weights.dim();
    assert_eq!(tokens, explanation.prefix_tokens + rows * columns);
    for map in &explanation.attention {
        for row in map.weights.rows() {
            assert!((row.sum() - 1.0).abs() < 1e-5);
        }
    }
    // All tokens are patches.
    assert!((explanation.rollout.sum() - 1.0).abs() < 1e-5 && explanation.rollout.iter().all(|&v| v > 0.0));
    assert_eq!(explanation.attention_to_patches(0)[0].dim(), (rows, columns));
    assert!(explainer.explain(&seven, Some(10)).is_err());
    let zero = explainer.explain(&seven, Some(0)).unwrap();
    assert!(zero.attribution.output < explanation.attribution.output);
}

#[test]
fn normalisation_is_part_of_the_gradient() {
    let mut graph = Graph::new("bytes", [1, 4, 6, 3], DType::U8);
    let input = graph.input();
    let spec = Normalize {
        scale: [0.1, 0.2, 0.3],
        shift: [1.0, 2.0, 3.0],
    };
    let y = graph
        .push(Role::Patch, "normalize", Op::Normalize(spec), [input])
        .unwrap();
    graph.set_output(hipvit::graph::OutputKind::Tokens, y);
    assert_gradient(&graph, "normalize");
}

#[derive(serde::Deserialize)]
struct Described {
    steps: usize,
    models: std::collections::BTreeMap<String, DescribedModel>,
}

#[derive(serde::Deserialize)]
struct DescribedModel {
    class: usize,
    logit: f64,
}

fn tensor(bytes: &[u8], name: &str) -> Vec<f32> {
    let tensors = safetensors::SafeTensors::deserialize(bytes).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    bytemuck::pod_collect_to_vec(tensor.data())
}

/// Expected values are from captum's integrated gradients and from lxt's rules in timm's layers: `scripts/golden_explanations.py`.
#[test]
fn contributions_equal_those_of_captum_and_lxt() {
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let data = tests.join("data/explain");
    let described = std::fs::read_to_string(data.join("explanations.json")).unwrap();
    let described: Described = serde_json::from_str(&described).unwrap();
    assert!(described.models.len() >= 4);
    for (name, model) in described.models {
        let graph = golden(&name, InputKind::PixelValues);
        let image = std::fs::read(tests.join("golden").join(&name).join("golden.safetensors")).unwrap();
        let len: usize = graph.value(graph.input()).shape.iter().product();
        let image = tensor(&image, "pixel_values")[..len].to_vec();
        let (_, output) = graph.outputs()[0];
        let mut weights = vec![0.0; graph.value(output).shape.iter().product()];
        weights[model.class] = 1.0;
        let direction = Direction { output, weights };
        let program = Program::<f64>::new(&graph).unwrap();
        let run = program.run(1, image.iter().map(|&v| v.into()).collect()).unwrap();
        let stored = std::fs::read(data.join(format!("{name}.safetensors"))).unwrap();
        for method in Method::ALL {
            let got = match method {
                Method::IntegratedGradients => {
                    integrated(&program, &image, &vec![0.0; len], &direction, described.steps).unwrap()
                }
                _ => propagated(&run, method, &direction).unwrap(),
            };
            assert_near(got.output, model.logit, 1e-5, &name);
            let expected = tensor(&stored, method.name());
            let largest = expected.iter().fold(0.0, |m: f32, v| m.max(v.abs()));
            // The expected values are stored in f32, and captum's nodes are in f32.
            let tolerance = 1e-5 * f64::from(largest);
            for (at, (&got, &expected)) in got.values.iter().zip(&expected).enumerate() {
                assert_near(
                    got,
                    expected.into(),
                    tolerance,
                    &format!("{name} {method} at {at}"),
                );
            }
        }
    }
}

/// An image larger than the model's is resized and cropped. A source pixel's contribution uses all of its weights. For an image of one
/// colour, these contributions sum to those of the input's pixels.
#[test]
fn source_pixels_sum_to_the_inputs() {
    let directory =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/timm_vit_class_token");
    let explainer = Explainer::load(directory).unwrap();
    // One colour, so that resampling does not round.
    let image = hipvit::image::RgbImage::new(20, 14, [200, 30, 90].repeat(20 * 14)).unwrap();
    let mut sum = 0.0;
    let mut last = None;
    for y in 0..14 {
        for x in 0..20 {
            let trace = explainer.trace(&image, [x, y], Some(3)).unwrap();
            sum += trace.contribution.source_pixel;
            last = Some(trace.contribution);
        }
    }
    let last = last.unwrap();
    assert!(last.gap.abs() < 1e-9 * (1.0 + last.output.abs()), "{last:?}");
    assert_near(
        sum,
        last.pixels,
        1e-5 * last.pixels.abs().max(0.1),
        "source pixels",
    );
}

#[test]
fn a_trace_follows_the_pixel() {
    let explainer = Explainer::new(&hipvit::Session::tinyvit32().unwrap()).unwrap();
    let seven = hipvit::image::open("../../assets/samples/7.png", hipvit::image::Limits::default()).unwrap();
    let trace = explainer
        .trace(&seven, [seven.width / 2, seven.height / 2], None)
        .unwrap();
    let (input, place) = (trace.input.unwrap(), trace.patch.unwrap());
    let [h, w] = trace.patch_size;
    assert_eq!(place.row * h + place.inner_row, input.y);
    assert_eq!(place.column * w + place.inner_column, input.x);
    assert_eq!(trace.token.unwrap().index, trace.prefix_tokens + place.index);
    assert_eq!(trace.layers.len(), explainer.info().depth);
    let weights: f64 = trace.resize.outputs.iter().map(|part| part.weight).sum();
    assert!(weights > 0.0, "{:?}", trace.resize);
    // The output consists of the tokens that the head reads after the last block, and the constants after it.
    let contribution = &trace.contribution;
    assert!(
        contribution.gap.abs() < 1e-4 * contribution.output.abs(),
        "{contribution:?}"
    );
    for layer in &trace.layers {
        assert_eq!(layer.heads.len(), explainer.info().heads);
        assert!(layer.ffn.positive <= layer.ffn.hidden && layer.share < 1.0);
        for head in &layer.heads {
            assert!(head.given.iter().map(|read| read.weight).sum::<f64>() <= 1.0 + 1e-5);
        }
    }
    // The shares of a patch's pixels sum to 1.
    let mut shares = 0.0;
    for y in 0..h {
        for x in 0..w {
            let (row, column) = (place.row * h + y, place.column * w + x);
            let trace = explainer.trace(&trace.resized, [column, row], None).unwrap();
            shares += trace.embedding.unwrap().share;
        }
    }
    assert_near(shares, 1.0, 1e-9, "shares of a patch");
    let outside = explainer.trace(&seven, [seven.width, 0], None).unwrap_err();
    assert!(outside.to_string().contains("outside of the image"), "{outside}");
}
