//! Functions in several steps, which are recognised by their values: the nodes before a last one, and what they compute.

use std::collections::HashMap;

use hipvit_graph::op::Op;
use hipvit_graph::reference::Array;
use hipvit_graph::{Graph, Node, ValueId};

/// Finds and computes steps. Lists of steps have the last one first.
pub(super) struct Steps<'a> {
    pub(super) graph: &'a Graph,
    producers: HashMap<ValueId, &'a Node>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(graph: &'a Graph) -> Self {
        let producers = graph.nodes().iter().map(|node| (node.output(), node)).collect();
        Self { graph, producers }
    }

    /// Returns the operands that neither are constants nor computed by one of the steps.
    pub(super) fn open_operands(&self, steps: &[&Node]) -> Vec<ValueId> {
        let mut open: Vec<ValueId> = Vec::new();
        for &id in steps.iter().flat_map(|step| &step.inputs) {
            let is_inside = steps.iter().any(|step| step.output() == id);
            if !is_inside && !self.graph.value(id).is_constant() && !open.contains(&id) {
                open.push(id);
            }
        }
        open
    }

    /// Returns the node that computes the last one of the open operands: it is not one of the others.
    pub(super) fn before(&self, open: &[ValueId]) -> Option<&'a Node> {
        let producers = open.iter().filter_map(|id| self.producers.get(id).copied());
        producers.max_by_key(|node| node.output())
    }

    /// Computes the steps from `x`. `None` if a constant is not a single number, or if a result does not have the elements that `fits` expects.
    pub(super) fn evaluate(
        &self,
        steps: &[&Node],
        (id, x): (ValueId, Array),
        fits: impl Fn(&Array) -> bool,
    ) -> Option<Vec<f64>> {
        let mut values = HashMap::from([(id, x)]);
        let mut ordered = steps.to_vec();
        ordered.sort_by_key(|step| step.output());
        for step in &ordered {
            for &id in &step.inputs {
                if let Some(tensor) = &self.graph.value(id).constant {
                    if tensor.len() != 1 {
                        return None;
                    }
                    let number = tensor.to_f32().iter().map(|&x| x.into()).collect();
                    values.insert(id, Array::new([1], number)?);
                }
            }
            let operands: Option<Vec<&Array>> = step.inputs.iter().map(|id| values.get(id)).collect();
            let result = step.op.eval(&operands?).ok()?.into_iter().next()?;
            if !fits(&result) {
                return None;
            }
            values.insert(step.output(), result);
        }
        Some(values.remove(&steps.first()?.output())?.into_values())
    }
}

/// Returns true for arithmetic of each element.
pub(super) fn is_arithmetic(op: &Op) -> bool {
    match op {
        Op::Elementwise(op) => !op.is_integer() && op.integer_operands().iter().all(|is_integer| !is_integer),
        Op::Mul(_) | Op::MulScalar(_) | Op::Add(_) => true,
        _ => false,
    }
}

/// Returns true if no value differs from the expected one by more than `tolerance` of the largest magnitude.
pub(super) fn is_close(values: &[f64], expected: &[f64], tolerance: f64) -> bool {
    let largest = expected.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let mut pairs = values.iter().zip(expected);
    pairs.all(|(value, expected)| (value - expected).abs() <= tolerance * largest)
}
