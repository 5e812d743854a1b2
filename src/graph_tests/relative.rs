//! The passes and shards on models whose attention has a bias.

use super::rotary::{EXACT, check, golden, pixels};
use crate::graph::{Graph, Passes, interpret, interpret_shards, optimize, shard};
use crate::ops::{AttentionOperands, Op};
use crate::reference::assert_close;

/// Returns the shape of each attention layer's bias.
fn biases(graph: &Graph) -> Vec<Vec<usize>> {
    let of = |node: &crate::graph::Node| match &node.op {
        Op::Attention(spec) if spec.bias => {
            let bias = node.inputs[spec.operands.count()];
            Some(graph.value(bias).shape.clone())
        }
        _ => None,
    };
    graph.nodes().iter().filter_map(of).collect()
}

#[test]
fn the_bias_stays_with_packed_projections_and_one_query() {
    for (name, last) in [
        ("timm_beit", [3, 17, 17]),
        ("hf_beit", [3, 17, 17]),
        // These pool the class token.
        ("timm_beit_shared", [3, 1, 16]),
        ("hf_beit_model", [3, 1, 36]),
    ] {
        let graph = golden(name);
        let (fast, _) = optimize(graph.clone(), &Passes::default()).unwrap();
        assert_eq!(biases(&fast).len(), 2, "{name}");
        assert_eq!(biases(&fast).last().map(Vec::as_slice), Some(&last[..]), "{name}");
        let packed = fast.nodes().iter().any(|node| match &node.op {
            Op::Attention(spec) => spec.operands == AttentionOperands::Separate,
            _ => false,
        });
        assert!(!packed, "{name}");
        check(name, &graph, &fast);
    }
}

#[test]
fn shards_have_the_bias_of_their_own_heads() {
    for name in ["timm_beit", "timm_beit_shared", "hf_beit_model"] {
        let (graph, _) = optimize(golden(name), &Passes::default()).unwrap();
        let pixels = pixels(&graph);
        let expected = interpret(&graph, 2, crate::tensor::Input::Pixels(&pixels)).unwrap();
        let shards: Vec<Graph> = (0..3).map(|rank| shard(&graph, rank, 3).unwrap()).collect();
        for part in &shards {
            assert!(biases(part).iter().all(|shape| shape[0] == 1), "{name}");
        }
        let results = interpret_shards(&shards, 2, crate::tensor::Input::Pixels(&pixels)).unwrap();
        for result in results {
            for ((kind, actual), (_, expected)) in result.iter().zip(&expected) {
                assert_eq!(actual.dim(), expected.dim(), "{name} {kind:?}");
                assert_close(actual.as_slice().unwrap(), expected.as_slice().unwrap(), EXACT);
            }
        }
    }
}

#[test]
fn a_bias_of_another_shape_is_refused() {
    let graph = golden("timm_beit");
    let node = graph
        .nodes()
        .iter()
        .find(|node| matches!(node.op, Op::Attention(_)));
    let op = &node.unwrap().op;
    let qkv = [1, 17, 72].as_slice();
    assert_eq!(op.shapes(&[qkv, &[3, 17, 17]]), Ok(vec![vec![1, 17, 24]]));
    for bias in [[3, 17, 16].as_slice(), &[1, 17, 17], &[17, 17]] {
        let error = op.shapes(&[qkv, bias]).unwrap_err().to_string();
        assert!(error.contains("`bias` has shape"), "{error}");
    }
    assert!(op.shapes(&[qkv]).is_err());
}
