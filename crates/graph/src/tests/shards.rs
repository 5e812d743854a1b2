//! Shards and stages compute the same as the whole graph.

use super::vit::{Head, Projection, Vit, assert_same_outputs as assert_same, pixels};
use crate::op::{Add, Op};
use crate::tensor::{DType, Input, Tensor};
use crate::{
    Graph, Optimizations, OutputKind, Passes, Role, interpret, interpret_shards, interpret_stage_shards,
    interpret_stages, optimize, shard, shard_stages, stages,
};

/// Returns the model kinds that differ in their blocks or heads, with `heads` heads.
fn models(heads: usize) -> Vec<(&'static str, Vit)> {
    let base = Vit {
        dim: 8 * heads,
        heads,
        ..Vit::default()
    };
    vec![
        ("ViT", base),
        (
            "DINOv2",
            Vit {
                swiglu: true,
                layer_scale: true,
                registers: 2,
                patch_positions: true,
                ..base
            },
        ),
        (
            "CLIP",
            Vit {
                projection: Projection::Separate { key_bias: true },
                head: Head::Mean,
                ..base
            },
        ),
        (
            "SigLIP",
            Vit {
                projection: Projection::Separate { key_bias: false },
                head: Head::AttentionPool,
                ..base
            },
        ),
        (
            "DeiT",
            Vit {
                head: Head::Distilled,
                ..base
            },
        ),
    ]
}

fn optimized(graph: Graph, optimizations: Optimizations) -> Graph {
    let passes = Passes {
        optimizations,
        ..Passes::default()
    };
    optimize(graph, &passes).unwrap().0
}

fn all_reduces(graph: &Graph) -> usize {
    let is = |node: &&crate::Node| matches!(node.op, Op::AllReduce(_));
    graph.nodes().iter().filter(is).count()
}

#[test]
fn shards_compute_what_the_whole_graph_does() {
    for heads in [6, 4] {
        for (name, vit) in models(heads) {
            for optimizations in [Optimizations::default(), Optimizations::NONE] {
                let graph = optimized(vit.random(3), optimizations);
                let pixels = pixels(&graph, 2);
                let expected = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
                for ranks in (1..=4).filter(|ranks| heads % ranks == 0) {
                    let shards: Vec<Graph> = (0..ranks)
                        .map(|rank| shard(&graph, rank, ranks).unwrap())
                        .collect();
                    let results = interpret_shards(&shards, 2, Input::Pixels(&pixels)).unwrap();
                    assert_eq!(results.len(), ranks);
                    for result in &results {
                        assert_same(&format!("{name} on {ranks}"), result, &expected);
                    }
                    // Two per block, and two in an attention-pooling head.
                    let pooled = 2 * usize::from(vit.head == Head::AttentionPool);
                    let wanted = if ranks == 1 { 0 } else { 2 * vit.depth + pooled };
                    for shard in &shards {
                        assert_eq!(all_reduces(shard), wanted, "{name} on {ranks}");
                        assert_eq!(shard.optimizations(), optimizations);
                    }
                }
            }
        }
    }
}

#[test]
fn the_residual_stays_part_of_the_sum() {
    let graph = optimized(
        Vit {
            heads: 2,
            ..Vit::default()
        }
        .random(1),
        Optimizations::default(),
    );
    let part = shard(&graph, 1, 2).unwrap();
    let ops: Vec<String> = part.nodes().iter().map(|node| node.op.to_string()).collect();
    assert!(
        ops.contains(&"all_reduce 2 ranks +bias +residual".to_owned()),
        "{ops:?}"
    );
    assert!(
        !ops.iter()
            .any(|op| op.starts_with("linear") && op.ends_with("+residual")),
        "{ops:?}"
    );
}

#[test]
fn channels_that_do_not_divide_are_shared_out_unevenly() {
    // The hidden layer has 4 · 24 = 96 channels, 12 units of 8. Five ranks get 2, 2, 3, 2, 3 units.
    let vit = Vit {
        dim: 40,
        heads: 5,
        swiglu: true,
        ..Vit::default()
    };
    let graph = optimized(vit.random(5), Optimizations::default());
    let pixels = pixels(&graph, 1);
    let expected = interpret(&graph, 1, Input::Pixels(&pixels)).unwrap();
    let shards: Vec<Graph> = (0..5).map(|rank| shard(&graph, rank, 5).unwrap()).collect();
    for result in interpret_shards(&shards, 1, Input::Pixels(&pixels)).unwrap() {
        assert_same("five ranks", &result, &expected);
    }
}

#[test]
fn what_cannot_be_divided_is_named() {
    let graph = optimized(
        Vit {
            heads: 6,
            dim: 24,
            ..Vit::default()
        }
        .random(1),
        Optimizations::default(),
    );
    assert_eq!(
        shard(&graph, 0, 4).unwrap_err().to_string(),
        "tensor: test has 6 attention heads, which cannot be divided evenly among 4 GPUs: use 2 or 3 or 6 GPUs, or another \
         parallelism"
    );
    assert_eq!(
        shard(&graph, 2, 2).unwrap_err().to_string(),
        "tensor: there is no rank 2 of 2"
    );
    let mut flat = Graph::new("flat", [1, 2, 2, 3], DType::U8);
    let (input, normalize) = (
        flat.input(),
        crate::op::Normalize {
            scale: [1.0; 3],
            shift: [0.0; 3],
        },
    );
    let x = flat
        .push(Role::Patch, "normalize", Op::Normalize(normalize), [input])
        .unwrap();
    flat.set_output(OutputKind::Embedding, x);
    assert_eq!(
        shard(&flat, 0, 2).unwrap_err().to_string(),
        "tensor: flat has no layers to divide among 2 GPUs"
    );
}

#[test]
fn a_shard_alone_is_no_model() {
    let graph = optimized(
        Vit {
            heads: 2,
            ..Vit::default()
        }
        .random(1),
        Optimizations::default(),
    );
    let part = shard(&graph, 0, 2).unwrap();
    let pixels = pixels(&graph, 1);
    let error = interpret(&part, 1, Input::Pixels(&pixels))
        .unwrap_err()
        .to_string();
    assert!(error.contains("sums over 2 ranks, but has 1"), "{error}");
}

#[test]
fn stages_compute_what_the_whole_graph_does() {
    for (name, vit) in models(3) {
        let vit = Vit { depth: 3, ..vit };
        for optimizations in [Optimizations::default(), Optimizations::NONE] {
            let graph = optimized(vit.random(3), optimizations);
            let pixels = pixels(&graph, 2);
            let expected = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
            for count in 1..=4 {
                let stages = stages(&graph, count).unwrap();
                assert_eq!(stages.len(), count);
                let result = interpret_stages(&stages, 2, Input::Pixels(&pixels)).unwrap();
                assert_eq!(result, expected, "{name} in {count}");
                // Each stage but the first starts with a copy.
                let nodes: usize = stages.iter().map(|stage| stage.graph.nodes().len()).sum();
                assert_eq!(nodes, graph.nodes().len() + count - 1);
            }
        }
    }
}

/// Every rank runs a share of each stage, and each rank of a stage has the whole boundary.
#[test]
fn shards_of_stages_compute_what_the_whole_graph_does() {
    for (name, vit) in models(4) {
        let vit = Vit { depth: 3, ..vit };
        let graph = optimized(vit.random(3), Optimizations::default());
        let pixels = pixels(&graph, 2);
        let expected = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
        for (count, ranks) in [(1, 2), (2, 2), (3, 4), (4, 2), (2, 1)] {
            let stages = stages(&graph, count).unwrap();
            let shards: Vec<_> = (0..ranks)
                .map(|rank| shard_stages(&stages, rank, ranks).unwrap())
                .collect();
            let ranks_stages: Vec<_> = shards.iter().map(Vec::as_slice).collect();
            let results = interpret_stage_shards(&ranks_stages, 2, Input::Pixels(&pixels)).unwrap();
            assert_eq!(results.len(), ranks);
            for result in &results {
                assert_same(&format!("{name}, {count} stages of {ranks}"), result, &expected);
            }
            let sums: usize = shards[0].iter().map(|stage| all_reduces(&stage.graph)).sum();
            let of_shard = all_reduces(&shard(&graph, 0, ranks).unwrap());
            assert_eq!(sums, of_shard, "{name}, {count} stages of {ranks}");
        }
    }
}

#[test]
fn hidden_layers_are_outputs_of_their_stages() {
    let mut graph = Vit {
        depth: 4,
        ..Vit::default()
    }
    .random(2);
    let residual = |graph: &Graph, name: &str| {
        let node = graph.nodes().iter().find(|node| node.name == name);
        node.unwrap_or_else(|| panic!("no node {name}")).output()
    };
    let blocks: Vec<_> = graph
        .nodes()
        .iter()
        .filter(|node| matches!(node.op, Op::Add(Add)))
        .map(|node| node.name.clone())
        .collect();
    for (index, name) in blocks.iter().skip(blocks.len() - 8).enumerate() {
        let id = residual(&graph, name);
        graph.set_output(OutputKind::HiddenLayer(index), id);
    }
    let graph = optimized(graph, Optimizations::default());
    let pixels = pixels(&graph, 1);
    let expected = interpret(&graph, 1, Input::Pixels(&pixels)).unwrap();
    assert!(expected.len() > 8);
    let stages = stages(&graph, 3).unwrap();
    assert_eq!(
        interpret_stages(&stages, 1, Input::Pixels(&pixels)).unwrap(),
        expected
    );
}

#[test]
fn stages_cost_about_the_same() {
    let graph = optimized(Vit::BASE.zeros(), Optimizations::default());
    for count in [2, 3, 4, 6] {
        let stages = stages(&graph, count).unwrap();
        let most = stages.iter().map(|stage| stage.flops).max().unwrap();
        let all: u64 = stages.iter().map(|stage| stage.flops).sum();
        // Each of the twelve blocks can be cut once; the larger part has two thirds.
        assert!(
            (most as f64) < all as f64 / count as f64 * 1.0 + all as f64 / 12.0 * 0.67,
            "{count}: {most} of {all}"
        );
    }
}

#[test]
fn too_many_stages_are_an_error() {
    let graph = optimized(Vit::default().random(1), Optimizations::default());
    let error = stages(&graph, 100).unwrap_err().to_string();
    assert!(
        error.contains("test can be cut into") && error.contains("stages at most, not 100"),
        "{error}"
    );
    assert!(stages(&graph, 0).is_err());
}

#[test]
fn columns_of_a_matrix_keep_its_dtype() {
    let whole = Tensor::from_f32([2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let part = whole.columns(1..3).unwrap();
    assert_eq!(
        (part.shape(), &part.to_f32()[..]),
        (&[2, 2][..], &[1.0, 2.0, 4.0, 5.0][..])
    );
    let halves: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0]
        .iter()
        .flat_map(|&v| half::bf16::from_f32(v).to_le_bytes())
        .collect();
    let whole = Tensor::view([2, 2], DType::BF16, std::sync::Arc::new(halves), 0..8).unwrap();
    let part = whole.columns(1..2).unwrap();
    assert_eq!((part.dtype(), &part.to_f32()[..]), (DType::BF16, &[2.0, 4.0][..]));
    assert!(
        whole.columns(1..3).is_none()
            && whole
                .rows(0..1)
                .unwrap()
                .reshaped([2])
                .unwrap()
                .columns(0..1)
                .is_none()
    );
}
