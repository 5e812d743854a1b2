//! Hidden channels as whole vectors.

use super::rotary::{golden, pixels};
use super::vit::Random;
use super::vit::{EXACT, assert_same};
use crate::graph::{Graph, OutputKind, Passes, Role, ValueId, interpret, interpret_shards, optimize, shard};
use crate::ops::{Activation, LayerNorm, Levels, Linear, Op, PatchConv, Pool, Rounding, SwiGlu};
use crate::reference::assert_close;
use crate::tensor::{DType, Input, Tensor};

fn passes(whole_vectors: bool) -> Passes {
    Passes {
        whole_vectors,
        ..Passes::default()
    }
}

/// Returns the graph with padding, and the number of padded networks. Checks that it computes the same as without.
fn padded(graph: Graph) -> (Graph, usize) {
    let (plain, _) = optimize(graph.clone(), &passes(false)).unwrap();
    let (padded, reports) = optimize(graph, &passes(true)).unwrap();
    let report = reports.iter().find(|report| report.name == "pad_hidden").unwrap();
    assert_same(&plain, &padded, EXACT);
    (padded, report.changes)
}

/// Models have two blocks each. The rows of gated layers have two halves.
#[test]
fn hidden_channels_become_whole_vectors() {
    for (name, width) in [("hf_vit", 64), ("hf_aimv2", 2 * 64), ("hf_dinov3_gated", 2 * 64)] {
        let (graph, changes) = padded(golden(name));
        assert_eq!(changes, 2, "{name}");
        let wide = graph.nodes().iter().filter(|node| {
            let shape = &graph.value(node.output()).shape;
            node.op.name() == "linear" && shape.last() == Some(&width)
        });
        assert_eq!(wide.count(), 2, "{name}");
    }
    let (_, changes) = padded(golden("timm_eva02_clip"));
    assert_eq!(changes, 0, "48 channels are whole vectors");
}

#[test]
fn padded_networks_are_divided_among_gpus() {
    let (graph, _) = optimize(golden("hf_vit"), &passes(true)).unwrap();
    let pixels = pixels(&graph);
    let whole = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
    let shards: Vec<Graph> = (0..3).map(|rank| shard(&graph, rank, 3).unwrap()).collect();
    for result in interpret_shards(&shards, 2, Input::Pixels(&pixels)).unwrap() {
        for ((_, part), (_, whole)) in result.iter().zip(&whole) {
            assert_close(part.as_slice().unwrap(), whole.as_slice().unwrap(), EXACT);
        }
    }
}

/// Operation between the two layers of a network.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    Nothing,
    Activation,
    Gate,
    NormedGate,
}

/// Returns a network with `hidden` channels.
fn network(hidden: usize, between: Between, rounding: Option<Rounding>, read_twice: bool) -> Graph {
    let mut graph = Graph::new("small", [1, 3, 2, 3], DType::F32);
    let mut random = Random(5);
    let mut constant = |graph: &mut Graph, name: &str, shape: Vec<usize>| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.next()).collect();
        graph.constant(name, Tensor::from_f32(shape, values).unwrap())
    };
    let halves = match between {
        Between::Gate | Between::NormedGate => 2,
        _ => 1,
    };
    let kernel = constant(&mut graph, "kernel", vec![4, 3, 1, 1]);
    let up = constant(&mut graph, "up", vec![halves * hidden, 4]);
    let bias = constant(&mut graph, "up.bias", vec![halves * hidden]);
    let norm = ["norm", "norm.bias"].map(|name| constant(&mut graph, name, vec![hidden]));
    let down = constant(&mut graph, "down", vec![5, hidden]);
    let input = graph.input();
    let mut push =
        |name: &str, op: Op, inputs: Vec<ValueId>| graph.push(Role::Other, name, op, inputs).unwrap();
    let patch = PatchConv {
        patch: [1, 1],
        bias: false,
    };
    let x = push("patches", Op::PatchConv(patch), vec![input, kernel]);
    let linear = Linear {
        rounding,
        ..Linear::default()
    };
    let first = Linear { bias: true, ..linear };
    let y = push("first", Op::Linear(first), vec![x, up, bias]);
    let hidden = match between {
        Between::Nothing => y,
        Between::Activation => push("act", Op::Activation(Activation::GeluErf), vec![y]),
        Between::Gate | Between::NormedGate => push("gate", Op::SwiGlu(SwiGlu), vec![y]),
    };
    let hidden = match between {
        Between::NormedGate => push(
            "gate.norm",
            Op::LayerNorm(LayerNorm { epsilon: 1e-6 }),
            vec![hidden, norm[0], norm[1]],
        ),
        _ => hidden,
    };
    let y = push("second", Op::Linear(linear), vec![hidden, down]);
    let pool = |skip| Op::Pool(Pool::Max { skip });
    let pooled = push("pool", pool(0), vec![y]);
    graph.set_output(OutputKind::Logits, pooled);
    if read_twice {
        let pooled = graph.push(Role::Other, "other", pool(0), [hidden]).unwrap();
        graph.set_output(OutputKind::Embedding, pooled);
    }
    graph
}

#[test]
fn gates_norms_count_their_own_channels_alone() {
    for hidden in [9, 27, 63, 65, 197, 257] {
        let (graph, changes) = padded(network(hidden, Between::NormedGate, None, false));
        assert_eq!(changes, 1);
        let padding = hidden.next_multiple_of(8) - hidden;
        let op = format!("swiglu_norm ε=1e-6 pad {padding}");
        assert!(graph.nodes().iter().any(|node| node.op.to_string() == op), "{op}");
    }
}

/// Covers whole vectors, fewer channels than a vector, quantised layers, and hidden values with another reader.
#[test]
fn other_hidden_channels_stay() {
    let changes = |hidden, between, rounding, read_twice| {
        let (_, reports) = optimize(network(hidden, between, rounding, read_twice), &passes(true)).unwrap();
        let report = reports.iter().find(|report| report.name == "pad_hidden").unwrap();
        report.changes
    };
    for between in [
        Between::Nothing,
        Between::Activation,
        Between::Gate,
        Between::NormedGate,
    ] {
        assert_eq!(changes(12, between, None, false), 1);
        assert_eq!(changes(16, between, None, false), 0);
        assert_eq!(changes(7, between, None, false), 0);
        assert_eq!(changes(12, between, None, true), 0);
        assert_eq!(
            changes(12, between, Some(Rounding::Int8(Levels::Range)), false),
            0
        );
        assert_eq!(changes(12, between, Some(Rounding::Bf16), false), 1);
    }
}
