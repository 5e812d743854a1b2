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
    /// For each axis of the value, the axes of memory that it joins, outermost first. None of them has an extent of 1.
    pub(super) axes: Vec<Vec<Axis>>,
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
                let axes = axes.iter().map(|&axis| view.axes[axis].clone()).collect();
                Some(View { axes, ..view })
            }
            Op::Reshape(_) => {
                let view = source();
                let axes = reshaped(&view.axes, self.shape(node.output()))?;
                Some(View { axes, ..view })
            }
            &Op::Slice(Slice {
                axis,
                start,
                len,
                step: 1,
            }) => {
                let mut view = source();
                let [of_axis] = view.axes[axis][..] else {
                    return None;
                };
                view.offset += start * of_axis.stride;
                view.axes[axis] = sole(len, of_axis.stride);
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

/// Returns the axes of memory for an axis of neighbours at this distance.
fn sole(extent: usize, stride: usize) -> Vec<Axis> {
    if extent == 1 {
        Vec::new()
    } else {
        vec![Axis { extent, stride }]
    }
}

/// Returns the axes of a tensor of this shape.
fn contiguous(shape: &[usize]) -> Vec<Vec<Axis>> {
    let mut stride = 1;
    let mut axes = Vec::with_capacity(shape.len());
    for &extent in shape.iter().rev() {
        axes.push(sole(extent, stride));
        stride *= extent;
    }
    axes.reverse();
    axes
}

/// Joins axes that are one axis in memory.
fn merged(axes: impl IntoIterator<Item = Axis>) -> Vec<Axis> {
    let mut merged: Vec<Axis> = Vec::new();
    for axis in axes {
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
    merged
}

/// Returns the axes with another shape. `None` if an extent is a part of one axis of memory and of the next.
fn reshaped(axes: &[Vec<Axis>], shape: &[usize]) -> Option<Vec<Vec<Axis>>> {
    let mut rest = merged(axes.iter().flatten().copied());
    let mut result = Vec::with_capacity(shape.len());
    for &extent in shape.iter().rev() {
        let mut group = Vec::new();
        let mut missing = extent;
        while missing > 1 {
            let axis = rest.pop()?;
            if missing.is_multiple_of(axis.extent) {
                missing /= axis.extent;
                group.push(axis);
            } else if axis.extent.is_multiple_of(missing) {
                let stride = axis.stride;
                group.push(Axis {
                    extent: missing,
                    stride,
                });
                rest.push(Axis {
                    extent: axis.extent / missing,
                    stride: stride * missing,
                });
                missing = 1;
            } else {
                return None;
            }
        }
        group.reverse();
        result.push(merged(group));
    }
    result.reverse();
    rest.is_empty().then_some(result)
}

impl View {
    /// Returns the extents of the value's axes.
    pub(super) fn extent(&self, axis: usize) -> usize {
        self.axes[axis].iter().map(|axis| axis.extent).product()
    }

    /// Returns true if the elements are all elements of the source in order.
    fn is_whole(&self, source: &[usize]) -> bool {
        let all = merged(self.axes.iter().flatten().copied());
        self.factor == 1.0 && self.offset == 0 && all == sole(source.iter().product(), 1)
    }

    /// Returns true if each axis has this stride, except for axes of one element.
    pub(super) fn has_strides(&self, strides: &[usize]) -> bool {
        let mut pairs = self.axes.iter().zip(strides);
        self.axes.len() == strides.len()
            && pairs.all(|(group, &stride)| match group[..] {
                [] => true,
                [axis] => axis.stride == stride,
                _ => false,
            })
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
        // A view of itself does not begin earlier, and single moves are left to the graph's own passes.
        if view.source == id || view.source == node.inputs[0] {
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
            if op.formula().to_string() == "add(x0, x1)"
                && op.integer_operands().iter().all(|is_integer| !is_integer) =>
        {
            Some([x, y])
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    /// Returns axes of `(extent, stride)` each.
    fn axes(pairs: &[(usize, usize)]) -> Vec<Vec<Axis>> {
        pairs
            .iter()
            .map(|&(extent, stride)| sole(extent, stride))
            .collect()
    }

    #[test]
    fn reshapes_of_views_split_and_join_axes() {
        let reshape = |from: &[(usize, usize)], shape: &[usize]| reshaped(&axes(from), shape);
        assert_eq!(
            reshape(&[(4, 6), (6, 1)], &[2, 12]),
            Some(axes(&[(2, 12), (12, 1)]))
        );
        assert_eq!(
            reshape(&[(6, 1), (4, 6)], &[2, 3, 1, 4]),
            Some(axes(&[(2, 3), (3, 1), (1, 1), (4, 6)]))
        );
        assert_eq!(reshape(&[(4, 1)], &[3]), None);
        assert_eq!(
            reshape(&[(6, 1), (4, 6)], &[3, 8]),
            Some(vec![
                sole(3, 2),
                vec![Axis { extent: 2, stride: 1 }, Axis { extent: 4, stride: 6 }],
            ])
        );
        assert_eq!(reshape(&[(6, 1), (5, 6)], &[3, 10, 2]), None);
        // Columns of a matrix are one axis of two axes of memory, and split again.
        let joined = reshape(&[(6, 1), (4, 6)], &[24]).unwrap();
        assert_eq!(joined, [axes(&[(6, 1), (4, 6)]).concat()]);
        assert_eq!(reshaped(&joined, &[6, 4]), Some(axes(&[(6, 1), (4, 6)])));
    }
}
