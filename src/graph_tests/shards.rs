//! Shards of models in 8 bits.

use super::vit::{assert_same_outputs, pixels};
use crate::graph::{Graph, Node, Passes, interpret, interpret_shards, optimize, shard, store_float8};
use crate::model::{self, LoadOptions};
use crate::ops::Op;
use crate::tensor::Input;

/// Layers in FP8 stay in FP8 when they are divided, by either extent of their weights, and so do the values between them.
#[test]
fn shards_of_float8_layers_are_in_float8() {
    const RANKS: usize = 3;
    let golden = "tests/golden/quantized/fp8_static";
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(golden);
    let model = model::load(&directory, &LoadOptions::default()).unwrap();
    // It has too few channels for GEMMs of FP8, which does not matter here.
    let (mut graph, _) = optimize(model.graph, &Passes::default()).unwrap();
    assert!(graph.divides_float8(1) && !graph.divides_float8(RANKS));
    store_float8(&mut graph);
    let layers = |graph: &Graph| -> Vec<usize> {
        let rounds = |node: &&Node| matches!(&node.op, Op::Linear(spec) if spec.rounding.is_some());
        let weights = graph
            .nodes()
            .iter()
            .filter(rounds)
            .map(|node| graph.value(node.inputs[1]));
        weights
            .map(|value| value.constant.as_ref().unwrap().scaled_parts().unwrap().0.len())
            .collect()
    };
    let stored = |graph: &Graph| {
        graph
            .values()
            .iter()
            .filter(|value| value.rounding.is_some())
            .count()
    };
    assert!(stored(&graph) > 0);
    let shards: Vec<Graph> = (0..RANKS)
        .map(|rank| shard(&graph, rank, RANKS).unwrap())
        .collect();
    for part in &shards {
        assert_eq!(stored(part), stored(&graph));
        let shares: Vec<usize> = layers(part).iter().map(|bytes| bytes * RANKS).collect();
        assert_eq!(shares, layers(&graph));
    }
    let pixels = pixels(&graph, 2);
    let expected = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
    for result in interpret_shards(&shards, 2, Input::Pixels(&pixels)).unwrap() {
        assert_same_outputs("fp8", &result, &expected);
    }
}

/// Norms are not divided: each rank's writes the same rows in 8 bits.
#[test]
fn norms_of_shards_round_rows() {
    const RANKS: usize = 3;
    let golden = "tests/golden/quantized/int8_token";
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(golden);
    let model = model::load(&directory, &LoadOptions::default()).unwrap();
    let passes = Passes {
        rounded_rows: true,
        ..Passes::default()
    };
    let (graph, reports) = optimize(model.graph, &passes).unwrap();
    let marked = reports
        .iter()
        .find(|report| report.name == "round_rows")
        .unwrap()
        .changes;
    assert!(marked > 0);
    for rank in 0..RANKS {
        let part = shard(&graph, rank, RANKS).unwrap();
        let roundings = |graph: &Graph| {
            let all = graph.values().iter().filter_map(|value| value.rounding);
            all.collect::<Vec<_>>()
        };
        assert_eq!(roundings(&part).len(), marked);
        assert_eq!(roundings(&part), roundings(&graph));
    }
}
