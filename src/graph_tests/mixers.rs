//! The passes, stages and shards on models whose linear layers mix tokens.

use std::collections::BTreeMap;

use super::rotary::{EXACT, check, golden, pixels};
use crate::graph::{
    Graph, OutputKind, Passes, Role, ValueId, interpret, interpret_shards, interpret_stages, optimize, shard,
    stages,
};
use crate::ops::{Levels, Linear, Op, PatchConv, Pool, Rounding, Transpose};
use crate::reference::assert_close;
use crate::tensor::{DType, Input, Tensor};

const MODELS: [&str; 4] = ["timm_mixer", "timm_gmixer", "timm_resmlp", "timm_gmlp"];

/// Counts each kind of transposition and of elementwise op.
fn ops(graph: &Graph) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in graph.nodes() {
        let op = node.op.to_string();
        if ["transpose", "affine", "scale", "add", "activation"]
            .iter()
            .any(|name| op.starts_with(name))
        {
            *counts.entry(op).or_default() += 1;
        }
    }
    counts
}

#[test]
fn what_follows_a_transposition_is_fused_into_it() {
    // Two blocks each. ResMLP's second affine map of each block is folded into weights, its last one comes before the pooling.
    let expected: [&[(&str, usize)]; 4] = [
        &[("transpose", 2), ("transpose+residual", 2)],
        &[("transpose", 2), ("transpose+residual", 2)],
        &[("affine", 3), ("transpose", 2), ("transpose+scale+residual", 2)],
        &[("transpose", 2), ("transpose+gate", 2)],
    ];
    for (name, expected) in MODELS.into_iter().zip(expected) {
        let graph = golden(name);
        let (fast, _) = optimize(graph.clone(), &Passes::default()).unwrap();
        let expected: BTreeMap<String, usize> = expected.iter().map(|&(op, n)| (op.to_owned(), n)).collect();
        assert_eq!(ops(&fast), expected, "{name}");
        check(name, &graph, &fast);
    }
}

/// Models have 15 tokens, which become 16.
#[test]
fn rows_of_tokens_are_padded_between_transpositions() {
    let passes = Passes {
        whole_vectors: true,
        ..Passes::default()
    };
    for (name, last) in [
        ("timm_mixer", "transpose+residual crop 1"),
        ("timm_resmlp", "transpose+scale+residual crop 1"),
        ("timm_gmlp", "transpose+gate crop 1"),
    ] {
        let graph = golden(name);
        let (plain, _) = optimize(graph.clone(), &Passes::default()).unwrap();
        let (padded, reports) = optimize(graph, &passes).unwrap();
        let report = reports.iter().find(|report| report.name == "pad_tokens").unwrap();
        assert_eq!(report.changes, 2, "{name}");
        assert_eq!(plain.nodes().len(), padded.nodes().len(), "{name}");
        let ops = ops(&padded);
        assert_eq!(
            [ops.get("transpose pad 1"), ops.get(last)],
            [Some(&2); 2],
            "{name}: {ops:?}"
        );
        for node in padded.nodes().iter().filter(|node| node.op.name() == "linear") {
            let shape = &padded.value(node.inputs[1]).shape;
            assert!(!shape.contains(&15), "{name} {}: {shape:?}", node.name);
        }
        let pixels = pixels(&plain);
        let expected = interpret(&plain, 2, Input::Pixels(&pixels)).unwrap();
        let actual = interpret(&padded, 2, Input::Pixels(&pixels)).unwrap();
        for ((_, actual), (_, expected)) in actual.iter().zip(&expected) {
            assert_close(actual.as_slice().unwrap(), expected.as_slice().unwrap(), EXACT);
        }
    }
}

/// Covers layers with another reader, SwiGLU, and tokens that are already whole vectors.
#[test]
fn other_rows_of_tokens_stay() {
    let passes = Passes {
        whole_vectors: true,
        ..Passes::default()
    };
    let changes = |tokens: usize, read_twice: bool, rounding: Option<Rounding>| {
        let mut graph = Graph::new("small", [1, 3, 1, tokens], DType::F32);
        let mut constant = |name: &str, shape: Vec<usize>| {
            let values: Vec<f32> = (0..shape.iter().product())
                .map(|i| i as f32 % 7.0 - 3.0)
                .collect();
            graph.constant(name, Tensor::from_f32(shape, values).unwrap())
        };
        let patches = constant("kernel", vec![4, 3, 1, 1]);
        let weight = constant("weight", vec![tokens, tokens]);
        let input = graph.input();
        let mut push =
            |name: &str, op: Op, inputs: Vec<ValueId>| graph.push(Role::Other, name, op, inputs).unwrap();
        let patch = PatchConv {
            patch: [1, 1],
            bias: false,
        };
        let x = push("patches", Op::PatchConv(patch), vec![input, patches]);
        let x = push("there", Op::Transpose(Transpose::default()), vec![x]);
        let linear = Linear {
            rounding,
            ..Linear::default()
        };
        let y = push("mix", Op::Linear(linear), vec![x, weight]);
        let back = push("back", Op::Transpose(Transpose::default()), vec![y]);
        let pooled = push("pool", Op::Pool(Pool::Max { skip: 0 }), vec![back]);
        graph.set_output(OutputKind::Logits, pooled);
        if read_twice {
            let pooled = graph
                .push(Role::Other, "other", Op::Pool(Pool::Max { skip: 0 }), [y])
                .unwrap();
            graph.set_output(OutputKind::Embedding, pooled);
        }
        let (_, reports) = optimize(graph, &passes).unwrap();
        let report = reports.iter().find(|report| report.name == "pad_tokens").unwrap();
        report.changes
    };
    let (_, reports) = optimize(golden("timm_gmixer"), &passes).unwrap();
    let gated = reports.iter().find(|report| report.name == "pad_tokens").unwrap();
    assert_eq!(gated.changes, 0);
    assert_eq!(changes(12, false, None), 1);
    assert_eq!(changes(16, false, None), 0);
    assert_eq!(changes(5, false, None), 0);
    assert_eq!(changes(12, true, None), 0);
    assert_eq!(changes(12, false, Some(Rounding::Int8(Levels::Range))), 0);
    assert_eq!(changes(12, false, Some(Rounding::Bf16)), 1);
}

#[test]
fn stages_compute_what_the_whole_model_does() {
    for (name, whole_vectors) in MODELS.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        let passes = Passes {
            whole_vectors,
            ..Passes::default()
        };
        let (graph, _) = optimize(golden(name), &passes).unwrap();
        let pixels = pixels(&graph);
        let whole = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
        for count in [2, 3] {
            let stages = stages(&graph, count).unwrap();
            let parts = interpret_stages(&stages, 2, Input::Pixels(&pixels)).unwrap();
            for ((_, whole), (_, part)) in whole.iter().zip(&parts) {
                assert_close(part.as_slice().unwrap(), whole.as_slice().unwrap(), EXACT);
            }
        }
    }
}

#[test]
fn networks_are_divided_where_a_layer_reads_the_other_alone() {
    let models = [("timm_mixer", 4), ("timm_gmixer", 4), ("timm_resmlp", 2)];
    for (whole_vectors, (name, sums)) in [false, true]
        .into_iter()
        .flat_map(|pad| models.map(|model| (pad, model)))
    {
        let passes = Passes {
            whole_vectors,
            ..Passes::default()
        };
        let (graph, _) = optimize(golden(name), &passes).unwrap();
        let pixels = pixels(&graph);
        let whole = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
        let shards: Vec<Graph> = (0..2).map(|rank| shard(&graph, rank, 2).unwrap()).collect();
        let reduced = shards[0]
            .nodes()
            .iter()
            .filter(|node| node.op.name() == "all_reduce");
        assert_eq!(reduced.count(), sums, "{name}");
        for result in interpret_shards(&shards, 2, Input::Pixels(&pixels)).unwrap() {
            for ((_, part), (_, whole)) in result.iter().zip(&whole) {
                assert_close(part.as_slice().unwrap(), whole.as_slice().unwrap(), EXACT);
            }
        }
    }
    // The gate's norm is over the channels that would be divided.
    let (graph, _) = optimize(golden("timm_gmlp"), &Passes::default()).unwrap();
    let error = shard(&graph, 0, 2).unwrap_err().to_string();
    assert!(error.contains("no layers to divide among 2 GPUs"), "{error}");
}
