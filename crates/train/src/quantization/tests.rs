//! Layers that training rounds, beside those of inference and of the reference.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use hipvit::exec::{Arena, CpuExecutor, ExecutorOptions, Inputs, Placement};
use hipvit::graph::grad::differentiate;
use hipvit::graph::plan::Plan;
use hipvit::graph::{Graph, OutputKind, Passes, Role, ValueId, optimize, prepare_training};
use hipvit::model::{Checkpoint, Format, InputKind, LoadOptions, TensorValues};
use hipvit::ops::{
    Activation, FakeQuantize, Float8, Float8Source, Int8Grid, Levels, Linear, Op, RoundFloat8, Rounding,
};
use hipvit::reference::Array;
use hipvit::tensor::{DType, Input, Tensor};

use super::{Quantization, in_int8, insert};
use crate::float8::{Derivatives, Float8Options};
use crate::tests::{IMAGES, golden, options, step, trainer};
use crate::{LossKind, PrecisionOptions, StepReport, TrainOptions, Weights};

const FLOAT8: Quantization = Quantization::Float8(Float8Options {
    max_rate: 0.05,
    delayed: true,
    all_layers: false,
});

/// Returns numbers of both signs, from a generator of period 2^64.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..len).map(|_| uniform() + uniform() + uniform()).collect()
}

/// A linear layer `[n, k]` on tokens. Returns the graph, the weight and the result.
fn layer(tokens: usize, weight: Tensor, rounding: Option<Rounding>) -> (Graph, ValueId, ValueId) {
    let mut graph = Graph::of_tokens("layer", [tokens, weight.shape()[1]]);
    let weight = graph.constant("fc.weight", weight);
    let op = Linear {
        rounding,
        ..Linear::default()
    };
    let input = graph.input();
    let y = graph.push(Role::Ffn, "blocks.0.fc", op, [input, weight]).unwrap();
    graph.set_output(OutputKind::Tokens, y);
    (graph, weight, y)
}

fn run(graph: Graph, x: &[f32]) -> Vec<f32> {
    let executor = CpuExecutor::new(&graph, Some(2)).unwrap();
    let plan = Plan::new(Arc::new(graph), 1, DType::F32).unwrap();
    let outputs = executor.run(&plan, Input::Values(x), &mut Arena::new(), None);
    outputs.unwrap()[0].1.iter().copied().collect()
}

/// A layer in training has the result of the layer in int8. Both multiply the same numbers; int8 adds integers exactly and multiplies the
/// sum by the two scales, training rounds each operand to f32 and adds the products in f32.
#[test]
fn a_layer_in_training_is_the_layer_in_int8() {
    for (tokens, k, n) in [(1, 1, 1), (5, 33, 7), (17, 300, 65)] {
        let (x, weight) = (numbers(1, tokens * k), numbers(2, n * k));
        let (levels, scales) = hipvit::graph::int8::round_weight(&weight, k);
        let bytes: Vec<u8> = levels.iter().map(|level| level.cast_unsigned()).collect();
        let range = 0..bytes.len();
        let int8 = Tensor::scaled([n, k], DType::I8, Arc::new(bytes), range, scales.clone()).unwrap();
        let rounding = Some(Rounding::Int8(Levels::Range));
        let expected = run(layer(tokens, int8, rounding).0, &x);
        let weight = Tensor::from_f32([n, k], weight).unwrap();
        let float = run(layer(tokens, weight.clone(), None).0, &x);
        let (trained, layers) = insert(
            &layer(tokens, weight, None).0,
            Quantization::Int8,
            &BTreeSet::new(),
        )
        .unwrap();
        assert_eq!(layers.int8.into_iter().collect::<Vec<_>>(), ["fc.weight"]);
        let found = run(trained, &x);
        let mut is_rounded = false;
        for (index, ((found, expected), float)) in found.iter().zip(&expected).zip(&float).enumerate() {
            let row = &x[index / n * k..][..k];
            let levels = &levels[index % n * k..][..k];
            let products = row.iter().zip(levels).map(|(x, &q)| (x * f32::from(q)).abs());
            // |x| is up to half a step from its level. Three roundings per product, and one per addition.
            let step = row.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
            let sum = (products.sum::<f32>() + 127.0 * step * k as f32) * scales[index % n];
            let bound = (k as f32 + 3.0) * f32::EPSILON / 2.0 * sum;
            assert!(
                (found - expected).abs() <= bound,
                "{k}: {found}, expected {expected} ± {bound:e}"
            );
            is_rounded |= (float - expected).abs() > bound;
        }
        assert!(is_rounded || k == 1);
    }
}

/// The logits of a whole model in training, beside those of the model in int8 that evaluates it.
#[test]
fn a_model_in_training_is_the_model_in_int8() {
    for name in ["timm_vit_class_token", "timm_vit_pre_norm_layer_scale", "hf_vit"] {
        let checkpoint = Checkpoint::open(Some(&golden(name))).unwrap();
        let load = LoadOptions::default();
        let model = checkpoint.model_with(&TensorValues::new(), &load).unwrap();
        let prepared = prepare_training(&model.graph).unwrap();
        let (trained, layers) = insert(&prepared, Quantization::Int8, &BTreeSet::new()).unwrap();
        let tensors: BTreeMap<String, Vec<usize>> = checkpoint
            .tensors()
            .map(|(name, shape)| (name.to_owned(), shape.to_vec()))
            .collect();
        let values = layers.int8.iter();
        let values = values.map(|name| {
            (
                name.clone(),
                checkpoint.tensor(name).unwrap().to_f32().into_owned(),
            )
        });
        let columns = |name: &str| tensors[name][1];
        let replaced = in_int8(values.collect(), &layers.int8, columns);
        let int8 = checkpoint.changed(Format::Int8, &replaced, &[], &load).unwrap();
        // Each layer in a block of the model in int8 is one that training rounds.
        let rounded = |graph: &Graph, is_rounded: fn(&Op) -> bool| {
            let nodes = graph.nodes().iter().filter(|node| is_rounded(&node.op));
            nodes.count()
        };
        let is_int8 = |op: &Op| {
            matches!(
                op,
                Op::Linear(Linear {
                    rounding: Some(Rounding::Int8(_)),
                    ..
                })
            )
        };
        let is_weight = |op: &Op| matches!(op, Op::FakeQuantize(spec) if spec.grid == Int8Grid::Weights);
        assert_eq!(
            rounded(&int8.graph, is_int8),
            rounded(&trained, is_weight),
            "{name}"
        );
        let (width, height) = model.preprocess.output_size();
        let pixels: Vec<u8> = (0..IMAGES * width * height * 3)
            .map(|i| (i * 7919 % 251) as u8)
            .collect();
        let logits = |graph: Graph| -> Vec<f32> {
            let graph = optimize(graph, &Passes::default()).unwrap().0;
            let options = ExecutorOptions {
                threads: Some(2),
                ..ExecutorOptions::new(DType::F32)
            };
            let executor = Placement::Host.executor(&graph, &options).unwrap();
            let plan = executor.plan(IMAGES).unwrap();
            let named = [(plan.graph().first_input_name(), Input::Pixels(&pixels).into())];
            let outputs = executor.run_inputs(&plan, Inputs::new(named)).unwrap();
            let logits = outputs.get("logits").unwrap();
            logits.values.iter().copied().collect()
        };
        let [float, trained, int8] = [model.graph, trained, int8.graph].map(logits);
        let largest = int8.iter().fold(0f32, |most, logit| most.max(logit.abs()));
        let error = |from: &[f32]| {
            let errors = from.iter().zip(&int8).map(|(a, b)| (a - b).abs() / largest);
            errors.fold(0f32, f32::max)
        };
        // Sums that differ in the last bits may round a number to the next level. Rounding all of thousands of numbers has the error of int8;
        // that of a few of them is below a twentieth of it. Without such a number the error is that of the sums, 6e-7.
        let (found, of_int8) = (error(&trained), error(&float));
        assert!(found <= 0.05 * of_int8, "{name}: {found:e}, int8 has {of_int8:e}");
    }
}

/// Returns the results of a layer, and the gradients of its input and its weight, by the reference. `gradient` is that of the result.
fn gradients(
    quantization: Quantization,
    x: &[f32],
    weight: &Tensor,
    gradient: &[f32],
    returned: bool,
) -> [Vec<f64>; 3] {
    let tokens = x.len() / weight.shape()[1];
    let (graph, ..) = layer(tokens, weight.clone(), None);
    let returned = returned.then(|| "blocks.0.fc".to_owned()).into_iter().collect();
    let (mut graph, _) = insert(&graph, quantization, &returned).unwrap();
    let ids: Vec<ValueId> = graph.ids().collect();
    let weight = ids
        .into_iter()
        .find(|&id| graph.value(id).name == "fc.weight")
        .unwrap();
    graph.make_parameter(weight).unwrap();
    let y = graph.outputs()[0].1;
    let seed = graph
        .add_input("seed", graph.value(y).shape.clone(), DType::F32)
        .unwrap();
    let derivatives = Derivatives::of(&graph);
    let wrt = [graph.input(), weight];
    let found = differentiate(&mut graph, [y, seed], &wrt, &|builder, node, gradients| {
        derivatives.vjp(builder, node, gradients)
    });
    let found = found.unwrap();
    for (index, id) in wrt.iter().enumerate() {
        graph.set_output(OutputKind::Gradient(index), found[id.index()].unwrap());
    }
    let inputs: Vec<Input<'_>> = graph
        .inputs()
        .map(|input| match graph.value(input.value).name.as_str() {
            "seed" => Input::Values(gradient),
            _ => Input::Values(x),
        })
        .collect();
    let mut interpreter = hipvit::graph::Interpreter::new(&graph);
    let outputs = interpreter.run(1, &inputs).unwrap();
    [0, 1, 2].map(|index| outputs[index].1.iter().copied().collect())
}

/// Returns `a · b`, `[m, k]` by `[k, n]`.
fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let element = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
    (0..m * n).map(|at| element(at / n, at % n)).collect()
}

fn exact(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| x.into()).collect()
}

fn transposed(a: &[f64], columns: usize) -> Vec<f64> {
    let rows = a.len() / columns;
    (0..a.len())
        .map(|at| a[at % rows * columns + at / rows])
        .collect()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() < 1e-9,
            "{what}: {found}, expected {expected}"
        );
    }
}

/// Gradients pass the rounding: those of the rounded operands are the operands' own.
#[test]
fn gradients_are_products_with_the_rounded_operands() {
    let (tokens, k, n) = (5, 12, 7);
    let (x, weight, dy) = (numbers(3, tokens * k), numbers(4, n * k), numbers(5, tokens * n));
    let in_int8 = |values: &[f32], columns: usize, grid| {
        let array: Array = Array::new([values.len() / columns, columns], exact(values)).unwrap();
        let results = Op::from(FakeQuantize { grid }).eval(&[&array]).unwrap();
        results[0].values().to_vec()
    };
    let in_float8 = |values: &[f32], format: Float8| -> Vec<f64> {
        let largest = values.iter().fold(0f32, |most, x| most.max(x.abs()));
        let scale = format.power_of_two_scale(largest);
        let rounded = values.iter().map(|&x| format.round_scaled(x, scale).into());
        rounded.collect()
    };
    let tensor = Tensor::from_f32([n, k], weight.clone()).unwrap();
    for quantization in [Quantization::Int8, FLOAT8] {
        let range = Int8Grid::Activations(Levels::Range);
        let [rounded_x, rounded_w, rounded_dy] = match quantization {
            Quantization::Int8 => [
                in_int8(&x, k, range),
                in_int8(&weight, k, Int8Grid::Weights),
                exact(&dy),
            ],
            _ => [
                in_float8(&x, Float8::E4M3),
                in_float8(&weight, Float8::E4M3),
                in_float8(&dy, Float8::E5M2),
            ],
        };
        assert_ne!(rounded_x, exact(&x));
        assert_ne!(rounded_w, exact(&weight));
        let [y, dx, dw] = gradients(quantization, &x, &tensor, &dy, false);
        assert_close(
            &y,
            &product(&rounded_x, &transposed(&rounded_w, k), [tokens, k, n]),
            "y",
        );
        assert_close(&dx, &product(&rounded_dy, &rounded_w, [tokens, n, k]), "dx");
        let expected = product(&transposed(&rounded_dy, n), &rounded_x, [n, tokens, k]);
        assert_close(&dw, &expected, "dw");
    }
    // A layer that has returned has the gradients of one that is not rounded.
    let expected = gradients(Quantization::None, &x, &tensor, &dy, false);
    assert_eq!(gradients(FLOAT8, &x, &tensor, &dy, true), expected);
}

fn rounded(quantization: Quantization) -> TrainOptions {
    TrainOptions {
        precision: PrecisionOptions {
            quantization,
            ..PrecisionOptions::default()
        },
        ..options(LossKind::CrossEntropy)
    }
}

/// Losses of rounded training stay near those of f32, and are not equal to them. The model soon knows the eight images by heart, and then the
/// losses are too sensitive to compare.
#[test]
fn rounded_steps_follow_those_of_f32() {
    let losses = |quantization| {
        let mut trainer = trainer("hf_vit", rounded(quantization)).unwrap();
        let reports: Vec<StepReport> = (0..6).map(|_| step(&mut trainer).unwrap()).collect();
        assert_eq!(trainer.take_layer_events(), []);
        reports
            .into_iter()
            .map(|report| report.loss)
            .collect::<Vec<f32>>()
    };
    let expected = losses(Quantization::None);
    // Half a step of int8 is 0.2 % of a row's range, and half a unit of E4M3 up to 6 % of a number. In sums, the errors of many numbers cancel.
    for (quantization, tolerance) in [(Quantization::Int8, 0.02), (FLOAT8, 0.05)] {
        let found = losses(quantization);
        assert_ne!(found, expected);
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                (found - expected).abs() <= tolerance * expected,
                "{quantization:?}: {found}, expected {expected}"
            );
        }
    }
}

/// A layer beyond the rate is reported once, and stays off after a resume.
#[test]
fn layers_that_underflow_return_to_f32_for_good() {
    let options = rounded(Quantization::Float8(Float8Options {
        max_rate: 0.0,
        ..Float8Options::default()
    }));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states.safetensors");
    let mut whole = trainer("hf_vit", options.clone()).unwrap();
    step(&mut whole).unwrap();
    let events = whole.take_layer_events();
    let returned: Vec<&str> = events.iter().map(|event| event.layer.as_str()).collect();
    assert!(!events.is_empty());
    assert!(
        events
            .iter()
            .all(|event| event.step == 1 && event.underflow > 0.0)
    );
    assert!(returned.iter().all(|name| name.starts_with("blocks.")));
    assert_eq!(whole.take_layer_events(), []);
    whole.save(&file).unwrap();
    let mut resumed = trainer("hf_vit", options).unwrap();
    resumed.restore(&file).unwrap();
    let mut other = trainer("hf_vit", rounded(FLOAT8)).unwrap();
    step(&mut other).unwrap();
    let [expected, found, of_all] =
        [&mut whole, &mut resumed, &mut other].map(|trainer| step(trainer).unwrap());
    assert_eq!(found, expected);
    // Without the layers' return, the step has another loss.
    assert_ne!(of_all.loss, expected.loss);
}

#[test]
fn a_rounding_that_does_not_fit_is_refused() {
    let refused = |options: TrainOptions| trainer("hf_vit", options).unwrap_err().to_string();
    let lora = crate::LoraOptions {
        rank: 2,
        alpha: 1.0,
        targets: Vec::new(),
        rule: crate::TensorRule::default(),
    };
    let error = refused(TrainOptions {
        lora: Some(lora),
        ..rounded(Quantization::Int8)
    });
    assert!(error.contains("LoRA"), "{error}");
    let error = refused(TrainOptions {
        dtype: DType::F16,
        ..rounded(FLOAT8)
    });
    assert!(error.contains("bf16"), "{error}");
    let error = refused(rounded(Quantization::Float8(Float8Options {
        max_rate: f32::NAN,
        ..Float8Options::default()
    })));
    assert!(error.contains("max rate"), "{error}");
}

/// The evaluated model has int8 weights, and the written one the weights that they are rounded from.
#[test]
fn the_evaluated_model_is_in_int8() {
    let trainer = trainer("hf_vit", rounded(Quantization::Int8)).unwrap();
    let model = trainer.model(Weights::Last).unwrap();
    assert!(model.graph.nodes().iter().any(|node| {
        matches!(
            node.op,
            Op::Linear(Linear {
                rounding: Some(Rounding::Int8(Levels::Range)),
                ..
            })
        )
    }));
}

/// Returns the roundings of a step in bf16, as GPUs with GEMMs of FP8 compute it.
fn roundings(checkpoint: &Checkpoint, input: InputKind) -> Vec<RoundFloat8> {
    let options = TrainOptions {
        dtype: DType::BF16,
        input,
        ..rounded(FLOAT8)
    };
    let (graph, _) = crate::step_graph(checkpoint, &options, &|_| crate::TensorRule::default()).unwrap();
    let roundings = graph.nodes().iter().filter_map(|node| match node.op {
        Op::RoundFloat8(op) => Some(op),
        _ => None,
    });
    roundings.collect()
}

#[test]
fn steps_store_bytes_where_gemms_multiply_them_and_round_with_activations() {
    let tinyvit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/tinyvit32");
    let checkpoint = Checkpoint::open(Some(&tinyvit)).unwrap();
    let model = checkpoint.model_with(&TensorValues::new(), &LoadOptions::default());
    let blocks = model
        .unwrap()
        .graph
        .nodes()
        .iter()
        .filter_map(hipvit::graph::Node::block)
        .max();
    let blocks = blocks.unwrap() + 1;
    let found = roundings(&checkpoint, InputKind::Pixels);
    // Input, weight and gradient of four layers.
    assert_eq!(found.len(), 12 * blocks);
    assert!(found.iter().all(|op| op.stored && op.delayed));
    let count = |is: fn(&RoundFloat8) -> bool| found.iter().filter(|op| is(op)).count();
    assert_eq!(
        count(|op| matches!(op.source, Float8Source::Activation(_))),
        blocks
    );
    assert_eq!(count(|op| matches!(op.source, Float8Source::Slope(_))), blocks);
    assert_eq!(count(|op| op.sums), 4 * blocks);
    // 24 and 60 channels.
    let checkpoint = Checkpoint::open(Some(&golden("hf_vit"))).unwrap();
    let found = roundings(&checkpoint, InputKind::PixelValues);
    assert!(!found.is_empty() && found.iter().all(|op| !op.stored));
}

/// The layers of a block of ViT-B: those beside attention would lose time, those beside GELU gain.
#[test]
fn layers_that_gain_time_are_in_fp8() {
    let mut graph = Graph::of_tokens("block", [3, 768]);
    let linear = |graph: &mut Graph, name: &str, x, [n, k]: [usize; 2]| {
        let weight = Tensor::from_f32([n, k], vec![0.0; n * k]).unwrap();
        let weight = graph.constant(format!("{name}.weight"), weight);
        graph
            .push(Role::Ffn, name, Linear::default(), [x, weight])
            .unwrap()
    };
    let x = graph.input();
    let projection = linear(&mut graph, "blocks.0.attn.proj", x, [768, 768]);
    let hidden = linear(&mut graph, "blocks.0.mlp.fc1", projection, [3072, 768]);
    let active = graph
        .push(Role::Ffn, "blocks.0.mlp.act", Activation::GeluErf, [hidden])
        .unwrap();
    let y = linear(&mut graph, "blocks.0.mlp.fc2", active, [768, 3072]);
    let y = linear(&mut graph, "blocks.1.attn.qkv", y, [2304, 768]);
    graph.set_output(OutputKind::Tokens, y);
    let names = |all_layers: bool, returned: &[&str]| {
        let options = Float8Options {
            all_layers,
            ..Float8Options::default()
        };
        let returned = returned.iter().map(|&name| name.to_owned()).collect();
        crate::float8::layers(&graph, options, &returned)
    };
    let gaining = ["blocks.0.mlp.fc1", "blocks.0.mlp.fc2"];
    assert_eq!(names(false, &[]), gaining);
    assert_eq!(names(false, &gaining[1..2]), gaining[..1]);
    assert_eq!(names(true, &[]).len(), 4);
    // No layer of a small model gains.
    let (small, ..) = layer(3, Tensor::from_f32([32, 32], vec![0.0; 1024]).unwrap(), None);
    let layers = crate::float8::layers(&small, Float8Options::default(), &BTreeSet::new());
    assert_eq!(layers, ["blocks.0.fc"]);
}

/// The history of largest magnitudes is a state: without it, a resumed run has other scales.
#[test]
fn a_resumed_run_has_the_scales_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states.safetensors");
    for delayed in [true, false] {
        let options = rounded(Quantization::Float8(Float8Options {
            delayed,
            ..Float8Options::default()
        }));
        let mut whole = trainer("hf_vit", options.clone()).unwrap();
        for _ in 0..3 {
            step(&mut whole).unwrap();
        }
        whole.save(&file).unwrap();
        let mut resumed = trainer("hf_vit", options).unwrap();
        resumed.restore(&file).unwrap();
        for _ in 0..2 {
            let [expected, found] = [&mut whole, &mut resumed].map(|trainer| step(trainer).unwrap());
            assert_eq!(found, expected);
        }
    }
}
