//! Compares the goldens' graphs before and after recognition, at two images.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use hipvit_graph::op::{Attention, AttentionOperands, Normalize, Op};
use hipvit_graph::reference::Array;
use hipvit_graph::{DType, Graph, Passes, ValueId, evaluate, optimize};

use crate::{Model, Options, load};

fn golden(name: &str) -> PathBuf {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/onnx"));
    folder.join(name).join("model.onnx")
}

fn loaded(name: &str, keep_nodes: bool) -> Model {
    let options = Options {
        keep_nodes,
        pixels: true,
        ..Options::default()
    };
    load(&golden(name), &options).unwrap()
}

/// Returns numbers in ±1, the same on every run, or small integers.
fn input(graph: &Graph, id: ValueId, shape: Vec<usize>) -> Array {
    let is_integer = graph.value(id).dtype == DType::I32;
    let number = |index: usize| {
        let hash = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if is_integer {
            (hash % 30) as f64
        } else {
            hash as f64 / f64::from(1 << 23) - 1.0
        }
    };
    let len = shape.iter().product();
    Array::new(shape, (0..len).map(number).collect()).unwrap()
}

fn outputs(model: &Model) -> Vec<Array> {
    let graph = &model.graph;
    let mut inputs: HashMap<ValueId, Array> = HashMap::new();
    for (info, of_graph) in model.inputs.iter().zip(graph.inputs()) {
        let shape = info.dims.iter().map(|dim| dim.extent(2).unwrap()).collect();
        inputs.insert(of_graph.value, input(graph, of_graph.value, shape));
    }
    let wanted: Vec<ValueId> = graph.outputs().iter().map(|&(_, id)| id).collect();
    let mut results = evaluate(graph, |id| inputs.get(&id), &wanted).unwrap();
    wanted
        .iter()
        .map(|id| results[id.index()].take().unwrap())
        .collect()
}

#[test]
fn graphs_compute_the_same_after_recognition() {
    for name in [
        "vit",
        "vit_attention",
        "swin",
        "convnext_opset_16",
        "clip_text",
        "dinov3",
        "segformer",
        "maxvit",
    ] {
        let (plain, recognized) = (loaded(name, true), loaded(name, false));
        let nodes = |model: &Model| model.graph.nodes().len();
        assert!(
            nodes(&recognized) < nodes(&plain),
            "{name}: {} nodes",
            nodes(&plain)
        );
        for (x, y) in outputs(&plain).iter().zip(outputs(&recognized)) {
            let largest = x
                .values()
                .iter()
                .fold(0.0, |largest: f64, x| largest.max(x.abs()));
            let pairs = x.values().iter().zip(y.values());
            let error = pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            // Factors and folded weights are rounded to f32, and erf by an exporter's constants.
            assert!(
                x.shape() == y.shape() && error <= 2e-5 * largest,
                "{name}: {error} of {largest}"
            );
        }
    }
}

fn attentions(name: &str) -> Vec<Attention> {
    let model = loaded(name, false);
    let attention = |node: &hipvit_graph::Node| match node.op {
        Op::Attention(attention) => Some(attention),
        _ => None,
    };
    model.graph.nodes().iter().filter_map(attention).collect()
}

#[test]
fn attention_reads_the_packed_projection() {
    let of_vit = attentions("vit");
    assert!(!of_vit.is_empty());
    for attention in of_vit {
        assert_eq!(attention.operands, AttentionOperands::PackedQkv);
        let expected = 1.0 / (attention.head_dim as f32).sqrt();
        assert!(
            (attention.scale - expected).abs() < 1e-6 * expected,
            "{}",
            attention.scale
        );
    }
    assert!(attentions("swin").iter().any(|attention| attention.bias));
}

/// The patch embedding is a GEMM of pixels, tokens are assembled in one step, and the last block computes the token that is read.
#[test]
fn vision_transformers_have_the_ops_of_their_loader() {
    let model = loaded("vit", false);
    let normalize = Normalize {
        scale: [0.5; 3],
        shift: [-1.0; 3],
    };
    let graph = model.graph.with_pixels(normalize, false).unwrap();
    let (graph, _) = optimize(graph, &Passes::default()).unwrap();
    let has = |op: &str| graph.nodes().iter().any(|node| node.op.name() == op);
    for op in ["patch_extract", "tokens", "pool", "attention"] {
        assert!(has(op), "{op}");
    }
    for op in ["conv", "concat", "expand", "slice", "permute", "normalize"] {
        assert!(!has(op), "{op}");
    }
    let last = graph.nodes().iter().rev().find_map(|node| match node.op {
        Op::Attention(attention) => Some(attention.operands),
        _ => None,
    });
    assert_eq!(last, Some(AttentionOperands::PackedKv));
}
