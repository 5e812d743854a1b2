//! Norms that the pass `round_rows` makes write 8 bits, and the locations of their row scales.

use std::sync::Arc;

use crate::op::{Add, Float8Scale, Levels, Linear, Op, RmsNorm, Rounding};
use crate::passes::round_rows;
use crate::plan::{ALIGNMENT, Plan};
use crate::tensor::{DType, Tensor};
use crate::{Graph, OutputKind, Role, ValueId};

const TOKENS: usize = 5;
const CHANNELS: usize = 48;
const INT8: Rounding = Rounding::Int8(Levels::Range);
const FLOAT8: Rounding = Rounding::Float8(Float8Scale::Row);

/// Returns a graph of a norm over groups of `normed` channels, and a linear layer with each of these roundings.
fn graph(normed: usize, roundings: &[Option<Rounding>]) -> (Graph, ValueId) {
    let mut graph = Graph::new("rows", [1, 1, 1, 3], DType::U8);
    let constant = |graph: &mut Graph, name: &str, shape: &[usize]| {
        let values = vec![0.5; shape.iter().product()];
        graph.constant(name, Tensor::from_f32(shape, values).unwrap())
    };
    let x = constant(&mut graph, "x", &[1, TOKENS, CHANNELS]);
    let scale = constant(&mut graph, "scale", &[normed]);
    let norm = Op::RmsNorm(RmsNorm { epsilon: 1e-6 });
    let norm = graph.push(Role::Other, "norm", norm, [x, scale]).unwrap();
    for (index, &rounding) in roundings.iter().enumerate() {
        let weight = constant(&mut graph, &format!("{index}.weight"), &[16, CHANNELS]);
        let op = Op::Linear(Linear {
            rounding,
            ..Linear::default()
        });
        let y = graph
            .push(Role::Other, format!("layer {index}"), op, [norm, weight])
            .unwrap();
        graph.set_output(OutputKind::HiddenLayer(index), y);
    }
    (graph, norm)
}

fn stored(graph: &Graph, norm: ValueId) -> Option<Rounding> {
    let rewritten = round_rows::run(graph);
    let rounding = rewritten.graph.value(norm).rounding;
    assert_eq!(rewritten.changes, usize::from(rounding.is_some()));
    rounding
}

#[test]
fn norms_write_what_all_their_readers_round_to() {
    for rounding in [INT8, FLOAT8, Rounding::Int8(Levels::Magnitude)] {
        let (one, norm) = graph(CHANNELS, &[Some(rounding)]);
        assert_eq!(stored(&one, norm), Some(rounding));
        let (two, norm) = graph(CHANNELS, &[Some(rounding), Some(rounding)]);
        assert_eq!(stored(&two, norm), Some(rounding));
        // One layer reads it in the dtype, or with another rounding.
        for other in [None, Some(Rounding::Int8(Levels::Fixed { scale: 1.0, zero: 3 }))] {
            let (two, norm) = graph(CHANNELS, &[Some(rounding), other]);
            assert_eq!(stored(&two, norm), None);
        }
        // The norm's result is also an output, or a residual.
        let (mut output, norm) = graph(CHANNELS, &[Some(rounding)]);
        output.set_output(OutputKind::Tokens, norm);
        assert_eq!(stored(&output, norm), None);
        let (mut added, norm) = graph(CHANNELS, &[Some(rounding)]);
        let sum = added
            .push(Role::Other, "sum", Op::Add(Add), [norm, norm])
            .unwrap();
        added.set_output(OutputKind::Tokens, sum);
        assert_eq!(stored(&added, norm), None);
        // The layer rounds whole rows, but the norm is per head.
        let (heads, norm) = graph(CHANNELS / 3, &[Some(rounding)]);
        assert_eq!(stored(&heads, norm), None);
    }
    // One fixed scale is not a rounding by rows.
    let (fixed, norm) = graph(CHANNELS, &[Some(Rounding::Float8(Float8Scale::Fixed(0.5)))]);
    assert_eq!(stored(&fixed, norm), None);
}

#[test]
fn scales_of_rows_lie_behind_the_bytes() {
    let bytes = (TOKENS * CHANNELS).next_multiple_of(ALIGNMENT);
    for (rounding, dtype, of_row) in [(INT8, DType::I8, 8), (FLOAT8, DType::F8E4M3, 4)] {
        let (graph, norm) = graph(CHANNELS, &[Some(rounding)]);
        let plan = |graph: Graph| Plan::new(Arc::new(graph), 1, DType::BF16).unwrap();
        let before = plan(graph.clone());
        let after = plan(round_rows::run(&graph).graph);
        let buffer = |plan: &Plan| plan.buffers().iter().find(|b| b.value == norm).cloned().unwrap();
        assert_eq!(buffer(&before).row_scales(), None);
        let buffer = buffer(&after);
        assert_eq!((buffer.dtype, buffer.rounding), (dtype, Some(rounding)));
        assert_eq!(buffer.row_scales(), Some(bytes));
        assert_eq!(buffer.bytes, bytes + TOKENS * of_row);
        assert_eq!(after.steps()[0].bytes_written, buffer.bytes as u64);
        let read = |plan: &Plan| plan.steps()[1].bytes_read;
        assert_eq!(read(&before) - read(&after), (TOKENS * CHANNELS) as u64);
    }
}
