//! Calls of whole models, executed on the host. Device memory is an array, and kernels are the plain loops of the fake provider. This tests
//! operands, strides, order and in-place results without a GPU.

mod attention;
mod host;
#[path = "../../../tests/fake/provider/kernels.rs"]
mod kernels;
mod shards;

use std::collections::HashMap;
use std::sync::Arc;

use self::host::Host;
use super::lower::{Addresses, Elsewhere, InPlace, lower, scratch_bytes};
use crate::graph::plan::Plan;
use crate::graph::{Graph, Optimizations, OutputKind, Passes, Role, ValueId, interpret, optimize};
use crate::graph_tests::rotary;
use crate::graph_tests::vit::{Head, Projection, Vit};
use crate::hip::DeviceAddress;
use crate::kernels as bindings;
use crate::model::{self, LoadOptions};
use crate::ops::{Activation, Concat, L2Norm, Linear, MulScalar, Normalize, Op, PatchConv, Pool};
use crate::reference::{assert_close, model_tolerance, tolerance};
use crate::tensor::{DType, Input, Tensor};

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

/// Returns a graph of a patch embedding, followed by `tail` on its tokens `[B,25,24]`.
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
            // A value of a narrow dtype goes through about ten roundings per block, whose errors add up at random.
            let roundings = if dtype == DType::F32 {
                1.0
            } else {
                (10.0 * vit.depth as f64).sqrt()
            };
            check(vit.random(1), dtype, roundings * tolerance(dtype, 4 * vit.dim));
            // Biases, activations, residuals and scores are then rounded separately, which doubles the roundings.
            let tolerance = roundings * 2f64.sqrt() * tolerance(dtype, 4 * vit.dim);
            check_with(vit.random(1), dtype, Optimizations::NONE, tolerance);
        }
    }
}

/// Mixers: transposition alone, with a scale, a residual or a gate, and affine maps, with and without fusion.
#[test]
fn models_that_mix_tokens_equal_the_reference_in_every_dtype() {
    for name in ["timm_mixer", "timm_gmixer", "timm_resmlp", "timm_gmlp"] {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/golden")
            .join(name);
        let graph = model::load(&directory, &LoadOptions::default()).unwrap().graph;
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            // As in a Vision Transformer of two blocks. The widest layer has 60 channels.
            let roundings = if dtype == DType::F32 { 1.0 } else { 20f64.sqrt() };
            check(graph.clone(), dtype, roundings * tolerance(dtype, 96));
            let tolerance = roundings * 2f64.sqrt() * tolerance(dtype, 96);
            check_with(graph.clone(), dtype, Optimizations::NONE, tolerance);
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
                .push(
                    Role::Other,
                    "concat",
                    Op::Concat(Concat { axis: 1 }),
                    [first, mean],
                )
                .unwrap();
            let weight = constant(graph, "weight", &[5, 48]);
            let most = pool(graph, "most", Pool::Max { skip: 3 });
            let y = graph
                .push(Role::Other, "head", Op::Linear(Linear::default()), [x, weight])
                .unwrap();
            graph
                .push(Role::Other, "both", Op::Concat(Concat { axis: 1 }), [y, most])
                .unwrap()
        });
        check(graph, dtype, 4.0 * tolerance(dtype, 48));
    }
}

/// If an activation precedes it, a residual that the result overwrites needs separate memory.
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
        // The residual has no other reader, the operand has.
        let y = graph
            .push(Role::Other, "twice", Op::MulScalar(MulScalar(2.0)), [x])
            .unwrap();
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

/// Models of 15 tokens: 16-bit rows are padded to 16 elements.
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

/// Returns the error of lowering the first step of a plan.
fn refused(plan: &Plan) -> String {
    let addresses = Addresses {
        inputs: DeviceAddress::from_raw(1),
        states: None,
        constants: &HashMap::new(),
        steps: &HashMap::new(),
        float8: None,
        sparse: &HashMap::new(),
        arena: DeviceAddress::from_raw(1),
        elsewhere: Elsewhere::NONE,
        in_place: &InPlace::default(),
        results: None,
        scratch: DeviceAddress::from_raw(1),
        counters: DeviceAddress::from_raw(1),
    };
    let error = lower(plan, &plan.steps()[0], addresses).unwrap_err();
    error.to_string()
}

#[test]
fn what_is_not_optimised_is_refused() {
    let graph = Arc::new(VIT.random(1));
    let plan = Plan::new(graph, 1, DType::F32).unwrap();
    let error = refused(&plan);
    assert!(error.contains("passes"), "{error}");
}

/// An input is in the dtype in which ops read it: f32 if none reads it in the plan's dtype.
#[test]
fn inputs_are_in_the_dtype_of_their_readers() {
    let mut graph = Graph::of_tokens("inputs", [3, 5]);
    let weight = graph.add_fixed_input("weight", [1], DType::F32).unwrap();
    let factor = graph.add_fixed_input("factor", [1], DType::F32).unwrap();
    graph.add_input("targets", [1, 7], DType::F32).unwrap();
    graph.add_input("mask", [1, 3], DType::U8).unwrap();
    let tokens = graph.input();
    // The first operand is read in f32, the second one in the plan's dtype.
    for (name, operands) in [("both", vec![weight, weight]), ("norm", vec![factor, weight])] {
        let norm = graph.push_node(
            Role::Other,
            name.into(),
            L2Norm {
                maximum: None,
                f32_gradients: false,
            }
            .into(),
            operands,
        );
        let norm = norm.unwrap().outputs[0];
        graph.set_output(OutputKind::GradientNorm, norm);
    }
    let doubled = graph
        .push(Role::Other, "doubled", MulScalar(2.0), [tokens])
        .unwrap();
    graph.set_output(OutputKind::Tokens, doubled);
    let plan = Plan::new(Arc::new(graph), 2, DType::BF16).unwrap();
    let inputs = plan.inputs().iter();
    let inputs: Vec<_> = inputs
        .map(|i| (i.dtype, i.shape.clone(), i.offset, i.bytes))
        .collect();
    let expected = [
        (DType::BF16, vec![2, 3, 5], 0, 60),
        (DType::BF16, vec![1], 256, 2),
        (DType::F32, vec![1], 512, 4),
        (DType::BF16, vec![2, 7], 768, 28),
        (DType::U8, vec![2, 3], 1024, 6),
    ];
    assert_eq!(inputs, expected);
    assert_eq!(plan.input_bytes(), 1030);
    let error = refused(&plan);
    assert!(
        error.contains("reads `weight` in f32, which is kept in bf16"),
        "{error}"
    );
}
