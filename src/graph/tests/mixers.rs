//! The passes, stages and shards on models whose linear layers mix tokens.

use std::collections::BTreeMap;

use super::rotary::{EXACT, check, golden, pixels};
use crate::graph::{Graph, Passes, interpret, interpret_shards, interpret_stages, optimize, shard, stages};
use crate::reference::assert_close;
use crate::tensor::Input;

const MODELS: [&str; 4] = ["timm_mixer", "timm_gmixer", "timm_resmlp", "timm_gmlp"];

/// How often each transposition and each elementwise op occurs.
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
    // Of two blocks; ResMLP's second affine map of each is in the weights, its last comes before the pooling.
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

#[test]
fn stages_compute_what_the_whole_model_does() {
    for name in MODELS {
        let (graph, _) = optimize(golden(name), &Passes::default()).unwrap();
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
    for (name, sums) in [("timm_mixer", 4), ("timm_gmixer", 4), ("timm_resmlp", 2)] {
        let (graph, _) = optimize(golden(name), &Passes::default()).unwrap();
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
