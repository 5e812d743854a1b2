//! The passes and shards on models with rotary position embedding.

use super::vit::Random;
use crate::graph::{
    Graph, Optimizations, Passes, interpret, interpret_shards, interpret_stages, optimize, shard, stages,
};
use crate::model::{self, LoadOptions};
use crate::ops::{AttentionOperands, Op, Rope, SwiGlu};
use crate::reference::assert_close;
use crate::tensor::Input;

/// Tolerance if LayerScale is folded into weights, which rounds constants to f32 once more.
const FOLDED: f64 = 1e-5;
/// Tolerance if only the order of the reference's f64 sums changes.
pub(super) const EXACT: f64 = 1e-12;

pub(crate) fn golden(name: &str) -> Graph {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = root.join("tests/golden").join(name);
    model::load(&directory, &LoadOptions::default()).unwrap().graph
}

/// The class token is not rotated. The last block therefore computes only its query, while all keys are rotated.
#[test]
fn one_query_is_computed_beside_rotated_keys() {
    // One table for all heads, a table per head, and separately rotated queries and keys.
    for (name, apart) in [
        ("timm_vit_rope", false),
        ("timm_vit_rope_mixed_ape", false),
        ("timm_sapiens2", true),
    ] {
        let graph = golden(name);
        let (fast, _) = optimize(graph.clone(), &Passes::default()).unwrap();
        let rotated: Vec<usize> = fast
            .nodes()
            .iter()
            .filter_map(|node| match &node.op {
                Op::Rope(Rope { rotated, .. }) => Some(*rotated),
                _ => None,
            })
            .collect();
        let last = fast.nodes().iter().rev().find_map(|node| match &node.op {
            Op::Attention(spec) => Some((spec.operands, fast.value(node.inputs[0]).shape.len())),
            _ => None,
        });
        if apart {
            // The separate rotation of queries is omitted.
            assert_eq!(rotated, [1, 1, 1], "{name}");
        } else {
            assert_eq!(rotated, [2, 1], "{name}");
            assert_eq!(last, Some((AttentionOperands::PackedKv, 2)), "{name}");
        }
        check(name, &graph, &fast);
    }
}

#[track_caller]
pub(super) fn check(name: &str, graph: &Graph, fast: &Graph) {
    let pixels = pixels(graph);
    let expected = interpret(graph, 2, Input::Pixels(&pixels)).unwrap();
    let actual = interpret(fast, 2, Input::Pixels(&pixels)).unwrap();
    for ((kind, actual), (_, expected)) in actual.iter().zip(&expected) {
        assert_eq!(actual.dim(), expected.dim(), "{name} {kind:?}");
        assert_close(actual.as_slice().unwrap(), expected.as_slice().unwrap(), FOLDED);
    }
}

/// Checks that two stages of the graph are cut where images are whole, and compute what it does.
pub(super) fn check_stages(name: &str, graph: &Graph) {
    let pixels = pixels(graph);
    let expected = interpret(graph, 2, Input::Pixels(&pixels)).unwrap();
    let parts = stages(graph, 2).unwrap();
    for part in &parts {
        assert_eq!(part.graph.value(part.graph.input()).shape[0], 1, "{name}");
    }
    let result = interpret_stages(&parts, 2, Input::Pixels(&pixels)).unwrap();
    for ((kind, actual), (_, expected)) in result.iter().zip(&expected) {
        assert_eq!(actual.dim(), expected.dim(), "{name} {kind:?}");
        assert_close(actual.as_slice().unwrap(), expected.as_slice().unwrap(), EXACT);
    }
}

/// Checks that two shards of the graph compute what it does, and returns them.
pub(super) fn check_shards(graph: &Graph) -> Vec<Graph> {
    let pixels = pixels(graph);
    let expected = interpret(graph, 2, Input::Pixels(&pixels)).unwrap();
    let shards: Vec<Graph> = (0..2).map(|rank| shard(graph, rank, 2).unwrap()).collect();
    for result in interpret_shards(&shards, 2, Input::Pixels(&pixels)).unwrap() {
        for ((_, actual), (_, expected)) in result.iter().zip(&expected) {
            assert_close(actual.as_slice().unwrap(), expected.as_slice().unwrap(), EXACT);
        }
    }
    shards
}

pub(super) fn optimized(name: &str) -> Graph {
    optimize(golden(name), &Passes::default()).unwrap().0
}

/// Returns the number of nodes of an op.
pub(super) fn count(graph: &Graph, op: &str) -> usize {
    graph.nodes().iter().filter(|node| node.op.name() == op).count()
}

pub(crate) fn pixels(graph: &Graph) -> Vec<u8> {
    let mut random = Random(7);
    let len = 2 * graph.value(graph.input()).shape.iter().product::<usize>();
    (0..len).map(|_| (127.5 + 127.5 * random.next()) as u8).collect()
}

#[test]
fn shards_rotate_their_own_heads() {
    for name in [
        "timm_vit_rope",
        "timm_vit_rope_mixed_ape",
        "timm_dinov3",
        "timm_eva02",
    ] {
        let (graph, _) = optimize(golden(name), &Passes::default()).unwrap();
        let pixels = pixels(&graph);
        let expected = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
        let shards: Vec<Graph> = (0..3).map(|rank| shard(&graph, rank, 3).unwrap()).collect();
        for part in &shards {
            let heads = part.nodes().iter().filter_map(|node| match &node.op {
                Op::Rope(spec) => Some(spec.heads),
                _ => None,
            });
            assert_eq!(heads.collect::<Vec<_>>(), [1, 1], "{name}");
        }
        for result in interpret_shards(&shards, 2, Input::Pixels(&pixels)).unwrap() {
            for ((kind, actual), (_, expected)) in result.iter().zip(&expected) {
                assert_eq!(actual.dim(), expected.dim(), "{name} {kind:?}");
                assert_close(actual.as_slice().unwrap(), expected.as_slice().unwrap(), EXACT);
            }
        }
    }
}

/// EVA-02's norm of the gated channels is fused with the gate only if fusion is enabled.
#[test]
fn norms_of_gates_are_part_of_the_gates() {
    for name in ["timm_eva02_clip", "timm_eva02_override_size"] {
        let graph = golden(name);
        let (fast, _) = optimize(graph.clone(), &Passes::default()).unwrap();
        let plain = Passes {
            optimizations: Optimizations::NONE,
            ..Passes::default()
        };
        let (plain, _) = optimize(graph.clone(), &plain).unwrap();
        let count = |graph: &Graph, of: fn(&Op) -> bool| graph.nodes().iter().filter(|n| of(&n.op)).count();
        let gates = count(&graph, |op| *op == Op::SwiGlu(SwiGlu));
        assert!(gates > 0, "{name}");
        for (graph, alone, normed) in [(&fast, 0, gates), (&plain, gates, 0)] {
            assert_eq!(count(graph, |op| *op == Op::SwiGlu(SwiGlu)), alone, "{name}");
            let found = count(graph, |op| matches!(op, Op::SwiGluNorm(_)));
            assert_eq!(found, normed, "{name}");
        }
        check(name, &graph, &fast);
    }
}
