//! Which values the pass `float8` has stored in FP8.

use std::sync::Arc;

use crate::op::{Attention, AttentionOperands, Float8Scale, Linear, MulScalar, Op, Rounding};
use crate::passes::float8;
use crate::tensor::{DType, Tensor};
use crate::{Graph, OutputKind, Role, ValueId};

const CHANNELS: usize = 32;
const INPUT: f32 = 0.01;
const QKV: f32 = 0.02;
const ATTENDED: f32 = 0.03;

/// Packed queries, keys and values, attention and a projection, in FP8.
fn graph(change: impl Fn(&mut Attention), read_twice: bool) -> Graph {
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
    let mut spec = Attention {
        heads: 2,
        head_dim: CHANNELS / 2,
        scale: 0.25,
        operands: AttentionOperands::PackedQkv,
        first_key: 0,
        key_mask: false,
        bias: false,
        causal: false,
        float8: Some(QKV),
        ..Attention::default()
    };
    change(&mut spec);
    let y = graph
        .push(Role::Attention, "attention", Op::Attention(spec), [qkv])
        .unwrap();
    let y = layer(&mut graph, "projection", y, CHANNELS, ATTENDED);
    graph.set_output(OutputKind::Logits, y);
    if read_twice {
        let other = graph
            .push(Role::Other, "other", Op::MulScalar(MulScalar(2.0)), [qkv])
            .unwrap();
        graph.set_output(OutputKind::HiddenLayer(0), other);
    }
    graph
}

/// The steps of queries, keys and values and of attention's result as they are stored, and what attention multiplies.
fn stored(graph: &Graph, whole: bool, fused: bool) -> [Option<f32>; 3] {
    let graph = float8::run(graph, whole, fused).unwrap().graph;
    let node = |name: &str| graph.nodes().iter().find(|node| node.name == name).unwrap();
    let of = |name: &str| graph.value(node(name).output()).rounding?.fixed_float8();
    let Op::Attention(spec) = &node("attention").op else {
        panic!("is not attention");
    };
    [of("qkv"), of("attention"), spec.float8]
}

#[test]
fn attention_reads_fp8_where_a_gpu_computes_it() {
    let plain = graph(|_| {}, false);
    assert_eq!(stored(&plain, true, true), [Some(QKV), Some(ATTENDED), Some(QKV)]);
    assert_eq!(stored(&plain, true, false), [None, Some(ATTENDED), None]);
    assert_eq!(stored(&plain, false, true), [None; 3]);
    // Something else reads them; the kernel does not take it.
    let in_dtype = [None, Some(ATTENDED), None];
    assert_eq!(stored(&graph(|_| {}, true), true, true), in_dtype);
    let causal = graph(|spec| spec.causal = true, false);
    assert_eq!(stored(&causal, true, true), in_dtype);
    let narrow = |spec: &mut Attention| (spec.heads, spec.head_dim) = (4, CHANNELS / 4);
    assert_eq!(stored(&graph(narrow, false), true, true), in_dtype);
}
