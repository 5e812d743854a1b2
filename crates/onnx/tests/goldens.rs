//! Models that torch's exporters wrote, computed by the graph's reference implementation, against ONNX Runtime's outputs.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::f16;
use hipvit_graph::reference::Array;
use hipvit_graph::{Graph, Passes, ValueId, evaluate, optimize};
use hipvit_onnx::{Model, Options, load};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;

/// Batch size of the golden tensors. The models are exported with another.
const BATCH: usize = 2;

/// Largest difference of models in f32, as a part of the largest output. ONNX Runtime is within 2e-6 of torch in double precision.
const TOLERANCE: f64 = 1e-5;

/// Largest difference of a model in f16. ONNX Runtime rounds each result to 11 bits, and is 6e-4 from torch in double precision.
const HALF_TOLERANCE: f64 = 2e-3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/onnx")
}

fn array(view: &TensorView<'_>) -> Array<f32> {
    let data = view.data();
    let values = match view.dtype() {
        Dtype::F32 => data
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect(),
        Dtype::F16 => data
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f16::from_le_bytes(bytes).to_f32())
            .collect(),
        Dtype::I64 => data
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| i64::from_le_bytes(bytes) as f32)
            .collect(),
        dtype => panic!("{dtype:?}"),
    };
    Array::new(view.shape().to_vec(), values).unwrap()
}

/// Returns the largest difference of any output, as a part of its largest value.
fn error(graph: &Graph, model: &Model, golden: &SafeTensors<'_>) -> f64 {
    let inputs = model.inputs.iter().zip(graph.inputs());
    let inputs: HashMap<ValueId, Array<f32>> = inputs
        .map(|(info, input)| {
            (
                input.value,
                array(&golden.tensor(&format!("input.{}", info.name)).unwrap()),
            )
        })
        .collect();
    let wanted: Vec<ValueId> = graph.outputs().iter().map(|&(_, id)| id).collect();
    let results = evaluate(graph, |id| inputs.get(&id), &wanted).unwrap();
    let errors = model.outputs.iter().zip(&wanted).map(|(info, id)| {
        let result = results[id.index()].as_ref().unwrap();
        let expected = array(&golden.tensor(&format!("output.{}", info.name)).unwrap());
        assert_eq!(result.shape(), expected.shape(), "{}", info.name);
        assert_eq!(result.shape()[0], BATCH);
        let pairs = result.values().iter().zip(expected.values());
        let largest = expected
            .values()
            .iter()
            .fold(0f64, |largest, &y| largest.max(y.abs().into()));
        // `max` would drop NaN.
        let worst = pairs.map(|(&x, &y)| (f64::from(x) - f64::from(y)).abs());
        worst.fold(0.0, |worst, error| if error <= worst { worst } else { error }) / largest
    });
    errors.fold(0.0, |worst, error| if error <= worst { worst } else { error })
}

#[test]
fn exported_models_agree_with_onnx_runtime() {
    let index: Value = serde_json::from_slice(&fs::read(root().join("cases.json")).unwrap()).unwrap();
    let mut failures = Vec::new();
    for case in index["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let tolerance = match case["dtype"].as_str().unwrap() {
            "float32" => TOLERANCE,
            "float16" => HALF_TOLERANCE,
            // Its integers depend on how each runtime rounds. The engine's test compares it.
            _ => continue,
        };
        let directory = root().join(name);
        let model = match load(&directory.join("model.onnx"), &Options::default()) {
            Ok(model) => model,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        let bytes = fs::read(directory.join("golden.safetensors")).unwrap();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let imported = error(&model.graph, &model, &golden);
        let (optimized, _) = optimize(model.graph.clone(), &Passes::default()).unwrap();
        let optimized = error(&optimized, &model, &golden);
        println!("{name}: {imported:.1e}, optimized {optimized:.1e}");
        if !(imported <= tolerance && optimized <= tolerance) {
            failures.push(format!(
                "{name}: differs by {imported:.1e}, optimized by {optimized:.1e}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
