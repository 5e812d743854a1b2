//! Models of single operators, computed by the graph's reference implementation, against ONNX Runtime's outputs.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use hipvit_graph::reference::Array;
use hipvit_graph::{Graph, Passes, ValueId, evaluate, optimize};
use hipvit_onnx::{Model, Options, load};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

/// Largest difference, as a part of the largest output. ONNX Runtime computes in f32.
const TOLERANCE: f64 = 2e-6;

fn array(view: &TensorView<'_>) -> Array {
    let data = view.data();
    let values = match view.dtype() {
        Dtype::F32 => {
            let elements = data.as_chunks().0.iter();
            elements.map(|&bytes| f32::from_le_bytes(bytes).into()).collect()
        }
        Dtype::I64 => {
            let elements = data.as_chunks().0.iter();
            elements.map(|&bytes| i64::from_le_bytes(bytes) as f64).collect()
        }
        dtype => panic!("{dtype:?}"),
    };
    Array::new(view.shape().to_vec(), values).unwrap()
}

/// Returns the first `rows` rows.
fn cut(array: &Array, rows: usize) -> Array {
    let mut shape = array.shape().to_vec();
    let len = array.values().len() / shape[0] * rows;
    shape[0] = rows;
    Array::new(shape, array.values()[..len].to_vec()).unwrap()
}

/// Returns the first difference of the outputs of a graph from ONNX Runtime's.
fn difference(graph: &Graph, model: &Model, golden: &SafeTensors<'_>) -> Option<String> {
    let tensor = |kind: &str, name: &str| array(&golden.tensor(&format!("{kind}.{name}")).unwrap());
    let inputs = model.inputs.iter().zip(graph.inputs());
    let inputs: HashMap<ValueId, Array> = inputs
        .map(|(info, input)| (input.value, tensor("input", &info.name)))
        .collect();
    let wanted: Vec<ValueId> = graph.outputs().iter().map(|&(_, id)| id).collect();
    let results = evaluate(graph, |id| inputs.get(&id), &wanted).unwrap();
    let named: HashMap<String, &Array> = graph
        .outputs()
        .iter()
        .map(|&(kind, id)| {
            let result = results[id.index()].as_ref().unwrap();
            (graph.output_name(kind).into_owned(), result)
        })
        .collect();
    for info in &model.outputs {
        let mut result = named[&info.name].clone();
        if let Some(counted) = &info.counted {
            assert_eq!(counted.axis, 0);
            result = cut(&result, named[&counted.output].values()[0] as usize);
        }
        let expected = tensor("output", &info.name);
        if result.shape() != expected.shape() {
            let (result, expected) = (result.shape(), expected.shape());
            return Some(format!("`{}` is {result:?}, expected {expected:?}", info.name));
        }
        let largest = expected
            .values()
            .iter()
            .fold(0.0, |largest: f64, y| largest.max(y.abs()));
        let pairs = result.values().iter().zip(expected.values());
        for (x, y) in pairs {
            let is_close = (x - y).abs() <= TOLERANCE * largest;
            if !(is_close && (info.element.is_float() || x == y)) {
                return Some(format!("`{}` has {x}, expected {y}", info.name));
            }
        }
    }
    None
}

#[test]
fn operators_agree_with_onnx_runtime() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/onnx_ops");
    let mut paths: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "onnx"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 7, "{paths:?}");
    let mut failures = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap().display().to_string();
        let bytes = fs::read(path.with_extension("safetensors")).unwrap();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        for keep_nodes in [true, false] {
            let options = Options {
                keep_nodes,
                ..Options::default()
            };
            let model = match load(&path, &options) {
                Ok(model) => model,
                Err(error) => {
                    failures.push(error.to_string());
                    break;
                }
            };
            let (optimized, _) = optimize(model.graph.clone(), &Passes::default()).unwrap();
            for graph in [&model.graph, &optimized] {
                if let Some(reason) = difference(graph, &model, &golden) {
                    failures.push(format!("{name}: {reason}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
