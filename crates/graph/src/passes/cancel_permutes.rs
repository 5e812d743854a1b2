//! Moves permutations of axes behind the ops that do not depend on the order of axes, where they meet their inverses and cancel. A
//! convolutional network, imported with channels first and computed with channels last, then has none inside.

mod layout;
mod reshape;

use std::collections::{HashMap, HashSet};

use self::layout::{Extents, keeps_order};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::op::{Concat, Expand, Gather, Op, Pad, Permute, Reduce, Slice};
use crate::provenance::Provenance;
use crate::reference;
use crate::rewrite::{Rewriter, Rewritten, rewrite};
use crate::tensor::{DType, Tensor};
use crate::value::ValueId;

/// Cost of a permutation besides its elements, in elements: a launch.
const LAUNCH: usize = 4096;

/// Counts the nodes that changed. The graph stays if its permutations would cost as much as before.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    let mut best = Rewritten {
        graph: graph.clone(),
        changes: 0,
    };
    while cost(&best.graph) > 0 {
        let moved = sink(&best.graph)?;
        if cost(&moved.graph) >= cost(&best.graph) {
            break;
        }
        best = Rewritten {
            graph: moved.graph,
            changes: best.changes + moved.changes,
        };
    }
    Ok(best)
}

/// Returns the cost of a graph's permutations.
fn cost(graph: &Graph) -> usize {
    let permutes = graph
        .nodes()
        .iter()
        .filter(|node| matches!(node.op, Op::Permute(_)));
    let elements = |node: &Node| graph.value(node.output()).shape.iter().product::<usize>();
    permutes.map(|node| elements(node) + LAUNCH).sum()
}

/// Returns the graph with each permutation as late as possible.
fn sink(graph: &Graph) -> Result<Rewritten> {
    let fixed = graph.outputs().iter().map(|&(_, id)| id);
    let fixed = fixed.chain(graph.updates().iter().map(|&(_, result)| result));
    let mut sinker = Sinker {
        graph,
        at_2: graph.shapes(2)?,
        fixed: fixed.collect(),
        permuted: HashMap::new(),
        known: HashMap::new(),
        constants: HashMap::new(),
        names: graph.values().iter().map(|value| value.name.clone()).collect(),
    };
    rewrite(graph, |rewriter, node| sinker.visit(rewriter, node))
}

/// An old value as a permutation of a new value.
#[derive(Clone, Debug)]
struct Permuted {
    /// The new value.
    base: ValueId,
    /// The axis of the base that is each axis of the old value.
    axes: Vec<usize>,
}

struct Sinker<'a> {
    graph: &'a Graph,
    /// Shapes at batch 2, which tell the extents that grow with the batch.
    at_2: Vec<Vec<usize>>,
    /// Old values that must exist as they are: outputs and updates.
    fixed: HashSet<ValueId>,
    /// Old values that are computed in another order of axes.
    permuted: HashMap<ValueId, Permuted>,
    /// Permutations of new values that were emitted.
    known: HashMap<(ValueId, Vec<usize>), ValueId>,
    /// Permutations of old constants that were computed.
    constants: HashMap<(ValueId, Vec<usize>), ValueId>,
    /// Names that values have.
    names: HashSet<String>,
}

/// An op that is applied to values in another order of axes.
struct Applied {
    op: Op,
    inputs: Vec<ValueId>,
    /// The axis of the new result that is each axis of the old one.
    axes: Vec<usize>,
}

impl<'a> Sinker<'a> {
    fn visit(&mut self, rewriter: &mut Rewriter<'a>, node: &'a Node) -> Result<Option<ValueId>> {
        if let Op::Permute(permute) = &node.op {
            let x = self.base(rewriter, node.inputs[0]);
            let axes = permute.axes.iter().map(|&axis| x.axes[axis]).collect();
            return self.finish(rewriter, node, Permuted { axes, ..x }).map(Some);
        }
        if node.inputs.iter().any(|id| self.permuted.contains_key(id)) {
            if let Some(applied) = self.apply(rewriter, node)? {
                let base = rewriter.emit(node.role, &node.name, applied.op, applied.inputs)?;
                let result = Permuted {
                    base,
                    axes: applied.axes,
                };
                return self.finish(rewriter, node, result).map(Some);
            }
            let inputs = node.inputs.iter().map(|&id| self.original(rewriter, node, id));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            return rewriter
                .emit(node.role, &node.name, node.op.clone(), inputs)
                .map(Some);
        }
        Ok(None)
    }

    /// Returns the value for the only result of `node`: the base, or the result itself if its axes have their order or it is fixed.
    fn finish(&mut self, rewriter: &mut Rewriter<'a>, node: &'a Node, result: Permuted) -> Result<ValueId> {
        let id = node.output();
        if result.axes.iter().enumerate().all(|(to, &from)| to == from) {
            return Ok(result.base);
        }
        if self.fixed.contains(&id) {
            let extents = self.extents(id);
            return self.permute(rewriter, node, &result, &extents);
        }
        let base = result.base;
        self.permuted.insert(id, result);
        Ok(base)
    }

    fn extents(&self, id: ValueId) -> Extents {
        Extents {
            at_1: self.graph.value(id).shape.clone(),
            at_2: self.at_2[id.index()].clone(),
        }
    }

    /// Returns the old value as a permutation, which may be that of no axes.
    fn base(&self, rewriter: &mut Rewriter<'a>, id: ValueId) -> Permuted {
        let own = || Permuted {
            base: rewriter.map(id),
            axes: (0..self.graph.value(id).shape.len()).collect(),
        };
        self.permuted.get(&id).cloned().unwrap_or_else(own)
    }

    /// Returns the new value that equals the old value.
    fn original(&mut self, rewriter: &mut Rewriter<'a>, node: &'a Node, id: ValueId) -> Result<ValueId> {
        match self.permuted.get(&id).cloned() {
            Some(permuted) => {
                let extents = self.extents(id);
                self.permute(rewriter, node, &permuted, &extents)
            }
            None => Ok(rewriter.map(id)),
        }
    }

    /// Emits the permutation of a base whose result has these extents. It is a reshape if no element moves.
    fn permute(
        &mut self,
        rewriter: &mut Rewriter<'a>,
        node: &'a Node,
        value: &Permuted,
        extents: &Extents,
    ) -> Result<ValueId> {
        let Permuted { base, axes } = value.clone();
        if let Some(&known) = self.known.get(&(base, axes.clone())) {
            return Ok(known);
        }
        let op = if keeps_order(&axes, &extents.at_2) {
            extents.reshape().into()
        } else {
            Op::from(Permute { axes: axes.clone() })
        };
        let name = self.name(node);
        let permuted = rewriter.emit(node.role, &name, op, [base])?;
        self.known.insert((base, axes), permuted);
        Ok(permuted)
    }

    fn name(&mut self, node: &Node) -> String {
        let mut name = format!("{}.permuted", node.name);
        let mut count = 1;
        while !self.names.insert(name.clone()) {
            count += 1;
            name = format!("{}.permuted.{count}", node.name);
        }
        name
    }

    /// Returns the op of `node` in another order of axes. `None` if it needs the original order.
    fn apply(&mut self, rewriter: &mut Rewriter<'a>, node: &'a Node) -> Result<Option<Applied>> {
        let shape = |index: usize| self.graph.value(node.inputs[index]).shape.as_slice();
        Ok(match &node.op {
            Op::Activation(_) | Op::MulScalar(_) => {
                let Permuted { base, axes } = self.base(rewriter, node.inputs[0]);
                Some(Applied {
                    op: node.op.clone(),
                    inputs: vec![base],
                    axes,
                })
            }
            Op::Add(_) | Op::Mul(_) if shape(0) == shape(1) => self.broadcast(rewriter, node)?,
            Op::Elementwise(_) => self.broadcast(rewriter, node)?,
            Op::Concat(concat) => self.concat(rewriter, node, *concat)?,
            Op::Slice(slice) => {
                let Permuted { base, axes } = self.base(rewriter, node.inputs[0]);
                let slice = Slice {
                    axis: axes[slice.axis],
                    ..*slice
                };
                Some(Applied {
                    op: slice.into(),
                    inputs: vec![base],
                    axes,
                })
            }
            Op::Pad(pad) => {
                let Permuted { base, axes } = self.base(rewriter, node.inputs[0]);
                let pad = Pad {
                    before: layout::scattered(&pad.before, &axes),
                    after: layout::scattered(&pad.after, &axes),
                    mode: pad.mode,
                };
                Some(Applied {
                    op: pad.into(),
                    inputs: vec![base],
                    axes,
                })
            }
            Op::Reduce(reduce) => {
                let Permuted { base, axes } = self.base(rewriter, node.inputs[0]);
                Some(reduced(reduce, base, &axes))
            }
            Op::Softmax(_) => {
                let Permuted { base, axes } = self.base(rewriter, node.inputs[0]);
                let last = axes.len().checked_sub(1);
                (axes.last().copied() == last).then(|| Applied {
                    op: node.op.clone(),
                    inputs: vec![base],
                    axes,
                })
            }
            Op::Gather(gather) => self.gather(rewriter, node, *gather)?,
            Op::Expand(expand) => self.expand(rewriter, node, expand),
            Op::Reshape(_) => self.reshape(rewriter, node),
            Op::BatchMatMul(_) => self.multiply(rewriter, node)?,
            _ => None,
        })
    }

    /// Applies an op with NumPy's broadcasting in the order of axes that permutes the fewest elements of its operands.
    fn broadcast(&mut self, rewriter: &mut Rewriter<'a>, node: &'a Node) -> Result<Option<Applied>> {
        let rank = self.graph.value(node.output()).shape.len();
        let Some(axes) = self.cheapest(node, rank) else {
            return Ok(None);
        };
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &id in &node.inputs {
            inputs.push(self.brought(rewriter, node, id, &axes)?);
        }
        Ok(Some(Applied {
            op: node.op.clone(),
            inputs,
            axes,
        }))
    }

    fn concat(
        &mut self,
        rewriter: &mut Rewriter<'a>,
        node: &'a Node,
        concat: Concat,
    ) -> Result<Option<Applied>> {
        let applied = self.broadcast(rewriter, node)?;
        Ok(applied.map(|applied| Applied {
            op: Concat {
                axis: applied.axes[concat.axis],
            }
            .into(),
            ..applied
        }))
    }

    /// Returns the order of axes, other than the original one, in which the operands permute the fewest elements. `None` for the original.
    fn cheapest(&self, node: &Node, rank: usize) -> Option<Vec<usize>> {
        let cost = |axes: &[usize]| -> usize {
            node.inputs
                .iter()
                .map(|&id| self.cost_of_bringing(id, axes))
                .sum()
        };
        let original: Vec<usize> = (0..rank).collect();
        let candidates = node.inputs.iter().filter_map(|id| self.permuted.get(id));
        let candidates = candidates.filter(|candidate| candidate.axes.len() == rank);
        let best = candidates.min_by_key(|candidate| cost(&candidate.axes))?;
        (cost(&best.axes) <= cost(&original)).then(|| best.axes.clone())
    }

    /// Returns the elements to permute to bring an operand into an order of axes.
    fn cost_of_bringing(&self, id: ValueId, axes: &[usize]) -> usize {
        let value = self.graph.value(id);
        let extents = self.extents(id).with_rank(axes.len());
        let own = self.permuted.get(&id);
        let is_free = match own {
            Some(own) if own.axes.len() == axes.len() => keeps_order(
                &layout::between(&own.axes, axes),
                &layout::scattered(&extents.at_2, axes),
            ),
            Some(_) => false,
            None => {
                value.is_constant()
                    || keeps_order(&layout::inverse(axes), &layout::scattered(&extents.at_2, axes))
            }
        };
        if is_free { 0 } else { value.shape.iter().product() }
    }

    /// Returns the old value, with as many axes as `axes`, in this order of axes.
    fn brought(
        &mut self,
        rewriter: &mut Rewriter<'a>,
        node: &'a Node,
        id: ValueId,
        axes: &[usize],
    ) -> Result<ValueId> {
        let extents = self.extents(id).with_rank(axes.len());
        let target = extents.permuted(axes);
        match self.permuted.get(&id).cloned() {
            Some(own) if own.axes == axes => return Ok(own.base),
            Some(own) if own.axes.len() == axes.len() => {
                let value = Permuted {
                    base: own.base,
                    axes: layout::between(&own.axes, axes),
                };
                return self.permute(rewriter, node, &value, &target);
            }
            None => {
                if let Some(tensor) = rewriter.tensor(id) {
                    return self.constant(rewriter, node, id, tensor, (&extents, axes));
                }
            }
            Some(_) => {}
        }
        let mut base = self.original(rewriter, node, id)?;
        let order = layout::inverse(axes);
        if keeps_order(&order, &target.at_2) {
            let name = self.name(node);
            return rewriter.emit(node.role, &name, target.reshape(), [base]);
        }
        if self.graph.value(id).shape.len() < axes.len() {
            let name = self.name(node);
            base = rewriter.emit(node.role, &name, extents.reshape(), [base])?;
        }
        self.permute(rewriter, node, &Permuted { base, axes: order }, &target)
    }

    /// Returns a constant in another order of axes.
    fn constant(
        &mut self,
        rewriter: &mut Rewriter<'a>,
        node: &'a Node,
        id: ValueId,
        tensor: &Tensor,
        (extents, axes): (&Extents, &[usize]),
    ) -> Result<ValueId> {
        if tensor.len() == 1 {
            return Ok(rewriter.map(id));
        }
        let order = layout::inverse(axes);
        if let Some(&known) = self.constants.get(&(id, order.clone())) {
            return Ok(known);
        }
        let failed = || Error::graph(&node.name, "a constant operand does not have its shape");
        let values: Vec<f32> = tensor.to_f32().into_owned();
        let array = Array::new(extents.at_1.clone(), values).ok_or_else(failed)?;
        let op = Op::from(Permute { axes: order.clone() });
        let array = reference::eval(&op, &[&array]).map_err(|source| Error::op(&node.name, &op, source))?;
        let permuted = if tensor.dtype() == DType::I32 {
            let values: Vec<i32> = array.values().iter().map(|&value| value as i32).collect();
            Tensor::from_i32(array.shape(), &values)
        } else {
            Tensor::from_f32(array.shape(), array.to_f32())
        };
        let provenance = Provenance::computed(self.name(node), [rewriter.provenance(id)]);
        let permuted = rewriter.constant(provenance, permuted.ok_or_else(failed)?);
        self.constants.insert((id, order), permuted);
        Ok(permuted)
    }

    fn gather(
        &mut self,
        rewriter: &mut Rewriter<'a>,
        node: &'a Node,
        gather: Gather,
    ) -> Result<Option<Applied>> {
        // Other indices change the number of axes.
        if self.graph.value(node.inputs[1]).shape.len() != 1 || !self.permuted.contains_key(&node.inputs[0]) {
            return Ok(None);
        }
        let indices = self.original(rewriter, node, node.inputs[1])?;
        let Permuted { base, axes } = self.base(rewriter, node.inputs[0]);
        Ok(Some(Applied {
            op: Gather {
                axis: axes[gather.axis],
            }
            .into(),
            inputs: vec![base, indices],
            axes,
        }))
    }

    fn expand(&mut self, rewriter: &mut Rewriter<'a>, node: &'a Node, expand: &Expand) -> Option<Applied> {
        let x = self.base(rewriter, node.inputs[0]);
        let rank = expand.extents.len();
        let axes = if x.axes.len() == rank {
            x.axes
        } else if self.permuted.contains_key(&node.inputs[0]) {
            return None;
        } else {
            (0..rank).collect()
        };
        let mut inputs = vec![x.base];
        let mut like = expand.like;
        if let (Some((axis, _)), Some(&id)) = (&mut like, node.inputs.get(1)) {
            let operand = self.base(rewriter, id);
            *axis = operand.axes[*axis];
            inputs.push(operand.base);
        }
        let op = Expand {
            extents: layout::scattered(&expand.extents, &axes),
            batch: expand.batch.map(|axis| axes[axis]),
            like,
        };
        Some(Applied {
            op: op.into(),
            inputs,
            axes,
        })
    }

    fn reshape(&self, rewriter: &mut Rewriter<'a>, node: &'a Node) -> Option<Applied> {
        let x = self.base(rewriter, node.inputs[0]);
        let (from, to) = (self.extents(node.inputs[0]), self.extents(node.output()));
        let (extents, axes) = reshape::permuted(&x.axes, &from, &to)?;
        Some(Applied {
            op: extents.reshape().into(),
            inputs: vec![x.base],
            axes,
        })
    }

    /// Multiplies a transposed matrix as it is stored.
    fn multiply(&mut self, rewriter: &mut Rewriter<'a>, node: &'a Node) -> Result<Option<Applied>> {
        let Op::BatchMatMul(mut op) = node.op else {
            return Ok(None);
        };
        let mut inputs = Vec::with_capacity(2);
        for (&id, is_transposed) in node.inputs.iter().zip([&mut op.transpose_a, &mut op.transpose_b]) {
            let Some(mut x) = self.permuted.get(&id).cloned() else {
                inputs.push(rewriter.map(id));
                continue;
            };
            let mut extents = self.extents(id);
            let rank = x.axes.len();
            // The last axis of the base stays the last one, so that rows are copied.
            if x.axes[rank - 2] == rank - 1 {
                *is_transposed = !*is_transposed;
                x.axes.swap(rank - 2, rank - 1);
                extents.at_1.swap(rank - 2, rank - 1);
                extents.at_2.swap(rank - 2, rank - 1);
            }
            let is_original = x.axes.iter().enumerate().all(|(to, &from)| to == from);
            inputs.push(if is_original {
                x.base
            } else {
                self.permute(rewriter, node, &x, &extents)?
            });
        }
        let rank = self.graph.value(node.output()).shape.len();
        Ok(Some(Applied {
            op: op.into(),
            inputs,
            axes: (0..rank).collect(),
        }))
    }
}

/// Returns a reduction of a permuted value.
fn reduced(reduce: &Reduce, base: ValueId, axes: &[usize]) -> Applied {
    let mut of_base: Vec<usize> = reduce.axes.iter().map(|&axis| axes[axis]).collect();
    of_base.sort_unstable();
    let result = if reduce.keep {
        axes.to_vec()
    } else {
        let before = |axis: usize| of_base.iter().filter(|&&reduced| reduced < axis).count();
        let kept = axes.iter().filter(|axis| !of_base.contains(axis));
        kept.map(|&axis| axis - before(axis)).collect()
    };
    Applied {
        op: Reduce {
            axes: of_base,
            ..reduce.clone()
        }
        .into(),
        inputs: vec![base],
        axes: result,
    }
}
