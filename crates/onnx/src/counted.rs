//! Values of which only some of the rows are results, as many as a run counts: those of `NonMaxSuppression`.
//!
//! The graph computes the largest number of rows. An op may take such a value if each row of its result depends on one row of the operand.

use hipvit_graph::ValueId;
use hipvit_graph::op::{Op, Shape};

use crate::error::{Refusal, refuse};

/// The axis of a value that has the rows, and the value of the graph with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) axis: usize,
    pub(crate) count: ValueId,
}

/// An operand: its extents at batch size 1, and its rows if they are counted.
pub(crate) type Operand<'a> = (&'a [usize], Option<Rows>);

/// Returns the rows of the results of `op`, which have the extents `results`.
pub(crate) fn of_results(
    op: &Op,
    operands: &[Operand<'_>],
    results: &[Shape],
) -> Result<Option<Rows>, Refusal> {
    let mut counted = operands
        .iter()
        .enumerate()
        .filter_map(|(index, (_, rows))| Some((index, (*rows)?)));
    let Some((first, rows)) = counted.next() else {
        return Ok(None);
    };
    if counted.any(|(_, other)| other.count != rows.count) {
        refuse!("combines the results of several NonMaxSuppression nodes, which is not supported");
    }
    let Some(axis) = axis(op, operands, first, rows.axis, &results[0]) else {
        refuse!(
            "takes rows whose number depends on the data (results of NonMaxSuppression), which {} does not support here",
            op.name()
        );
    };
    Ok(Some(Rows { axis, ..rows }))
}

/// Returns the axis of the result that has the rows of operand `first`, the first one with rows. `None` if a row of the result depends on
/// several rows, or if the op is not known here.
fn axis(op: &Op, operands: &[Operand<'_>], first: usize, axis: usize, result: &[usize]) -> Option<usize> {
    let (shape, _) = operands[first];
    match op {
        Op::Elementwise(_)
        | Op::Add(_)
        | Op::Mul(_)
        | Op::MulScalar(_)
        | Op::Activation(_)
        | Op::Expand(_) => broadcast(operands, first, axis, result),
        Op::Gather(op) if first == 1 => Some(op.axis + axis),
        Op::Gather(op) if operands[1].1.is_none() => {
            let indices = operands[1].0.len();
            match axis {
                axis if axis < op.axis => Some(axis),
                axis if axis > op.axis => Some(axis + indices - 1),
                _ => None,
            }
        }
        Op::GatherElements(_) if first == 1 => Some(axis),
        Op::Slice(op) => (op.axis != axis).then_some(axis),
        Op::Concat(op) => {
            let is_same = operands
                .iter()
                .all(|(_, rows)| rows.is_some_and(|rows| rows.axis == axis));
            (op.axis != axis && is_same).then_some(axis)
        }
        Op::Permute(op) => op.axes.iter().position(|&from| from == axis),
        Op::Reshape(_) => reshaped(shape, axis, result),
        Op::Reduce(op) if !op.axes.contains(&axis) => {
            let before = op.axes.iter().filter(|&&reduced| reduced < axis).count();
            Some(if op.keep { axis } else { axis - before })
        }
        Op::Softmax(_) | Op::Linear(_) | Op::TopK(_) if first == 0 && axis + 1 < shape.len() => Some(axis),
        Op::BatchMatMul(op) if first == 0 && operands[1].1.is_none() && !op.transpose_a => {
            let from_end = shape.len() - axis;
            // An axis before the matrices is one of the other operand too.
            (from_end == 2).then(|| result.len() - 2)
        }
        _ => None,
    }
}

/// Returns the axis of a result whose elements are combined by the rules of broadcasting.
fn broadcast(operands: &[Operand<'_>], first: usize, axis: usize, result: &[usize]) -> Option<usize> {
    let (shape, _) = operands[first];
    let from_end = shape.len() - axis;
    let of_result = result.len().checked_sub(from_end)?;
    let fits = operands.iter().all(|(shape, rows)| match rows {
        Some(rows) => shape.len() - rows.axis == from_end,
        // One row is combined with all of them.
        None => shape
            .len()
            .checked_sub(from_end)
            .is_none_or(|axis| shape[axis] == 1),
    });
    (fits && result[of_result] == shape[axis]).then_some(of_result)
}

/// Returns the axis of a tensor in another shape that has the same elements.
fn reshaped(shape: &[usize], axis: usize, result: &[usize]) -> Option<usize> {
    if shape[axis] == 1 {
        return (shape == result).then_some(axis);
    }
    let before: usize = shape[..axis].iter().product();
    let mut product = 1;
    for (index, &extent) in result.iter().enumerate() {
        if product == before && extent == shape[axis] {
            return Some(index);
        }
        product *= extent;
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::{ModelProto, NodeProto, ValueInfoProto};
    use crate::{Options, load_bytes};

    /// Returns the error of a model that applies `op` to the rows that are selected.
    fn refused(op: &str) -> String {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/golden/onnx_ops/boxes.onnx"
        );
        let mut model = ModelProto::decode(&std::fs::read(path).unwrap()[..]).unwrap();
        let graph = model.graph.as_mut().unwrap();
        let selected = graph.output[0].name.clone();
        graph.node.push(NodeProto {
            op_type: op.into(),
            input: vec![selected],
            output: vec!["y".into()],
            ..NodeProto::default()
        });
        graph.output.push(ValueInfoProto {
            name: "y".into(),
            ..ValueInfoProto::default()
        });
        let options = Options {
            extents: [("batch".to_owned(), 2)].into(),
            ..Options::default()
        };
        let result = load_bytes("boxes", model.encode_to_vec(), &options);
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_needs_the_number_of_rows_is_refused() {
        assert!(
            refused("Shape")
                .ends_with("reads the number of results of NonMaxSuppression, which is not supported")
        );
        assert!(refused("Size").contains("reads the number of results"));
        let flat = refused("ReduceMax");
        assert!(
            flat.contains("(ReduceMax, opset 18)") && flat.contains("which reduce does not support here"),
            "{flat}"
        );
    }

    #[test]
    fn rows_stay_an_axis_of_other_shapes() {
        assert_eq!(reshaped(&[6, 3], 0, &[1, 6, 3]), Some(1));
        assert_eq!(reshaped(&[6, 1], 0, &[6]), Some(0));
        assert_eq!(reshaped(&[2, 6, 3], 1, &[2, 6, 1, 3]), Some(1));
        assert_eq!(reshaped(&[6, 3], 0, &[18]), None);
        assert_eq!(reshaped(&[6, 3], 0, &[3, 6]), None);
        assert_eq!(reshaped(&[1, 3], 0, &[3]), None);
    }
}
