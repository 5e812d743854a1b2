//! Values that the pass `float8` stores in FP8.

use std::sync::Arc;

use crate::op::{Attention, AttentionOperands, Float8Scale, Linear, MulScalar, Op, Rounding};
use crate::passes::float8;
use crate::tensor::{DType, Tensor};
use crate::{Graph, OutputKind, Role, ValueId};

const CHANNELS: usize = 32;
const INPUT: f32 = 0.01;
const ATTENDED: f32 = 0.03;

/// Returns a graph of attention between FP8 layers: packed queries, keys and values, and a projection.
fn graph(read_twice: bool) -> Graph {
    let mut graph = Graph::new("float8", [1, 1, 1, 3], DType::U8);
    let layer = |graph: &mut Graph, name: &str, x: ValueId, outputs: usize, scale: f32| {
        let bytes = Arc::new(vec![0x38; outputs * CHANNELS]);
        let range = 0..bytes.len();
        let shape = [outputs, CHANNELS];
        let weight = Tensor::scaled(shape, DType::F8E4M3, bytes, range, vec![1.0; outputs]).unwrap();
        let weight = graph.constant(format!("{name}.weight"), weight);
        let op = Op::Linear(Linear {
            rounding: Some(Rounding::Float8(Float8Scale::Fixed(scale))),
            ..Linear::default()
        });
        graph.push(Role::Other, name, op, [x, weight]).unwrap()
    };
    let x = Tensor::from_f32([1, 5, CHANNELS], vec![1.0; 5 * CHANNELS]).unwrap();
    let x = graph.constant("x", x);
    let qkv = layer(&mut graph, "qkv", x, 3 * CHANNELS, INPUT);
    let spec = Attention {
        heads: 2,
        head_dim: CHANNELS / 2,
        scale: 0.25,
        operands: AttentionOperands::PackedQkv,
        ..Attention::default()
    };
    let y = graph
        .push(Role::Attention, "attention", Op::Attention(spec), [qkv])
        .unwrap();
    if read_twice {
        let other = graph.push(Role::Other, "other", MulScalar(2.0), [y]).unwrap();
        graph.set_output(OutputKind::HiddenLayer(0), other);
    }
    let y = layer(&mut graph, "projection", y, CHANNELS, ATTENDED);
    graph.set_output(OutputKind::Logits, y);
    graph
}

/// Returns the FP8 steps of queries, keys and values, and of attention's result. `None` if not stored in FP8.
fn stored(graph: &Graph, whole: bool) -> [Option<f32>; 2] {
    let graph = float8::run(graph, whole).unwrap().graph;
    ["qkv", "attention"].map(|name| {
        let node = graph.nodes().iter().find(|node| node.name == name).unwrap();
        graph.value(node.output()).rounding?.fixed_float8()
    })
}

#[test]
fn a_value_that_only_fp8_layers_read_is_in_fp8() {
    // Attention reads the first layer's result in the dtype.
    assert_eq!(stored(&graph(false), true), [None, Some(ATTENDED)]);
    assert_eq!(stored(&graph(false), false), [None; 2]);
    assert_eq!(stored(&graph(true), true), [None; 2]);
}
