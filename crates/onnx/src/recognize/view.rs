//! Values that are views of others: elements at regular distances, in another order of axes.

use std::collections::HashMap;

use hipvit_graph::op::{MulScalar, Op, Permute, Reshape, Slice};
use hipvit_graph::{Graph, Node, Result, ValueId, rewrite};

/// An axis of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) extent: usize,
    /// Distance of neighbours in the source, in elements.
    pub(super) stride: usize,
}

/// Elements of a value, times a factor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct View {
    pub(super) source: ValueId,
    pub(super) factor: f32,
    /// Index of the first element in the source.
    pub(super) offset: usize,
    pub(super) axes: Vec<Axis>,
}

/// A graph with the producers of its values and its shapes at batch size 2, at which strides of the batch are visible.
pub(super) struct Views<'a> {
    pub(super) graph: &'a Graph,
    pub(super) producers: HashMap<ValueId, &'a Node>,
    pub(super) shapes: Vec<Vec<usize>>,
}

impl<'a> Views<'a> {
    pub(super) fn new(graph: &'a Graph) -> Result<Self> {
        Ok(Self {
            graph,
            producers: graph.nodes().iter().map(|node| (node.output(), node)).collect(),
            shapes: graph.shapes(2)?,
        })
    }

    pub(super) fn shape(&self, id: ValueId) -> &[usize] {
        &self.shapes[id.index()]
    }

    /// Returns the value as a view of the value that its permutations, reshapes and slices begin with.
    pub(super) fn of(&self, id: ValueId) -> View {
        let moved = self.producers.get(&id).and_then(|node| self.through(node));
        moved.unwrap_or_else(|| View {
            source: id,
            factor: 1.0,
            offset: 0,
            axes: contiguous(self.shape(id)),
        })
    }

    fn through(&self, node: &Node) -> Option<View> {
        let source = || self.of(node.inputs[0]);
        match &node.op {
            Op::Permute(Permute { axes }) => {
                let view = source();
                let axes = axes.iter().map(|&axis| view.axes[axis]).collect();
                Some(View { axes, ..view })
            }
            Op::Reshape(_) => {
                let view = source();
                let axes = reshaped(&view.axes, self.shape(node.output()))?;
                Some(View { axes, ..view })
            }
            Op::Slice(Slice { axis, start, len, step: 1 }) => {
                let mut view = source();
                view.offset += start * view.axes[*axis].stride;
                view.axes[*axis].extent = *len;
                Some(view)
            }
            Op::MulScalar(MulScalar(factor)) => {
                let view = source();
                let factor = view.factor * factor;
                Some(View { factor, ..view })
            }
            _ => None,
        }
    }
}

/// Returns the axes of a tensor of this shape.
fn contiguous(shape: &[usize]) -> Vec<Axis> {
    let mut stride = 1;
    let mut axes: Vec<Axis> = Vec::with_capacity(shape.len());
    for &extent in shape.iter().rev() {
        axes.push(Axis { extent, stride });
        stride *= extent;
    }
    axes.reverse();
    axes
}

/// Returns the axes with another shape. `None` if the elements are not at regular distances then.
fn reshaped(axes: &[Axis], shape: &[usize]) -> Option<Vec<Axis>> {
    // Neighbours that are one axis in memory.
    let mut merged: Vec<Axis> = Vec::new();
    for &axis in axes.iter().filter(|axis| axis.extent != 1) {
        match merged.last_mut() {
            Some(last) if last.stride == axis.stride * axis.extent => {
                *last = Axis {
                    extent: last.extent * axis.extent,
                    stride: axis.stride,
                };
            }
            _ => merged.push(axis),
        }
    }
    let mut result = Vec::with_capacity(shape.len());
    let mut rest = merged.pop();
    for &extent in shape.iter().rev() {
        if extent == 1 {
            result.push(Axis { extent, stride: 1 });
            continue;
        }
        let axis = rest?;
        if !axis.extent.is_multiple_of(extent) {
            return None;
        }
        result.push(Axis {
            extent,
            stride: axis.stride,
        });
        rest = match axis.extent / extent {
            1 => merged.pop(),
            left => Some(Axis {
                extent: left,
                stride: axis.stride * extent,
            }),
        };
    }
    result.reverse();
    rest.is_none().then_some(result)
}

impl View {
    /// Returns true if the elements are all elements of the source in order.
    fn is_whole(&self, source: &[usize]) -> bool {
        let shape: Vec<usize> = self.axes.iter().map(|axis| axis.extent).collect();
        let expected = contiguous(&shape);
        let mut pairs = self.axes.iter().zip(&expected);
        self.factor == 1.0
            && self.offset == 0
            && shape.iter().product::<usize>() == source.iter().product::<usize>()
            && pairs.all(|(own, expected)| own.extent == 1 || own == expected)
    }

    /// Returns true if each axis has this stride, except for axes of one element.
    pub(super) fn has_strides(&self, strides: &[usize]) -> bool {
        let mut pairs = self.axes.iter().zip(strides);
        self.axes.len() == strides.len() && pairs.all(|(axis, &stride)| axis.extent == 1 || axis.stride == stride)
    }
}

/// Returns the reshape to the shape of `like`, of which the extent that grows with the batch is known.
pub(super) fn reshape(at_one: &[usize], at_two: &[usize]) -> Reshape {
    Reshape {
        extents: at_one.to_vec(),
        batch: at_one.iter().zip(at_two).position(|(one, two)| one != two),
    }
}

/// Removes permutations and reshapes that restore the order of the elements.
pub(super) fn simplify(graph: &Graph) -> Result<Graph> {
    let views = Views::new(graph)?;
    let rewritten = rewrite(graph, |rewriter, node| {
        if !matches!(node.op, Op::Permute(_) | Op::Reshape(_)) {
            return Ok(None);
        }
        let id = node.output();
        let view = views.of(id);
        if view.source == node.inputs[0] && matches!(node.op, Op::Reshape(_)) && view.is_whole(views.shape(view.source)) {
            return Ok(None);
        }
        if !view.is_whole(views.shape(view.source)) {
            return Ok(None);
        }
        let source = rewriter.map(view.source);
        if views.shape(view.source) == views.shape(id) {
            return Ok(Some(source));
        }
        let op = reshape(&graph.value(id).shape, views.shape(id));
        rewriter.emit(node.role, &node.name, op, [source]).map(Some)
    })?;
    Ok(rewritten.graph)
}

/// Returns the operands of a sum of two values: first the one that is computed, then a constant.
pub(super) fn constant_sum(graph: &Graph, node: &Node) -> Option<[ValueId; 2]> {
    let [x, y] = sum(node)?;
    match [x, y].map(|id| graph.value(id).is_constant()) {
        [false, true] => Some([x, y]),
        [true, false] => Some([y, x]),
        _ => None,
    }
}

/// Returns the operands of a sum of two values.
fn sum(node: &Node) -> Option<[ValueId; 2]> {
    match (&node.op, &node.inputs[..]) {
        (Op::Add(_), &[x, y]) => Some([x, y]),
        (Op::Elementwise(op), &[x, y])
            if op.formula().to_string() == "add(x0, x1)" && op.integer_operands().iter().all(|is_integer| !is_integer) =>
        {
            Some([x, y])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(pairs: &[(usize, usize)]) -> Vec<Axis> {
        pairs.iter().map(|&(extent, stride)| Axis { extent, stride }).collect()
    }

    #[test]
    fn reshapes_of_views_split_and_merge_axes() {
        assert_eq!(reshaped(&axes(&[(4, 6), (6, 1)]), &[2, 12]), Some(axes(&[(2, 12), (12, 1)])));
        // Columns of a matrix are not one axis.
        assert_eq!(reshaped(&axes(&[(6, 1), (4, 6)]), &[24]), None);
        assert_eq!(reshaped(&axes(&[(6, 1), (4, 6)]), &[2, 3, 1, 4]), Some(axes(&[(2, 3), (3, 1), (1, 1), (4, 6)])));
        assert_eq!(reshaped(&axes(&[(4, 1)]), &[3]), None);
        assert_eq!(reshaped(&axes(&[(1, 9)]), &[]), Some(vec![]));
    }
}
