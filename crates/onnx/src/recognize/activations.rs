//! Activations in several steps, such as `x/2 · (1 + erf(x/√2))`. They are recognised by their values.

use std::collections::HashMap;

use hipvit_graph::op::{Activation, Op};
use hipvit_graph::reference::Array;
use hipvit_graph::{Graph, Node, Result, ValueId, rewrite};

/// The activations that take several steps.
const ACTIVATIONS: [Activation; 4] = [
    Activation::Silu,
    Activation::GeluErf,
    Activation::GeluTanh,
    Activation::QuickGelu,
];

/// Most steps of an activation.
const MOST_STEPS: usize = 12;

/// Largest difference from an activation, relative to its largest magnitude. Constants are rounded to f32, and by some exporters to
/// f16. The two forms of GELU differ by 5e-4.
const TOLERANCE: f64 = 2e-5;

/// Replaces the last step of each activation. The others are dropped if nothing else reads them.
pub(super) fn run(graph: &Graph) -> Result<Graph> {
    let producers: HashMap<ValueId, &Node> = graph.nodes().iter().map(|node| (node.output(), node)).collect();
    let mut finder = Finder {
        graph,
        producers,
        points: points(),
    };
    let rewritten = rewrite(graph, |rewriter, node| {
        let Some((activation, x)) = finder.activation(node) else {
            return Ok(None);
        };
        let x = rewriter.map(x);
        rewriter.emit(node.role, &node.name, activation, [x]).map(Some)
    })?;
    Ok(rewritten.graph)
}

/// Returns arguments at which functions are compared.
fn points() -> Vec<f64> {
    (-64..=64).map(|index| f64::from(index) / 8.0 + 0.013).collect()
}

struct Finder<'a> {
    graph: &'a Graph,
    producers: HashMap<ValueId, &'a Node>,
    points: Vec<f64>,
}

impl Finder<'_> {
    /// Returns the activation that `node` ends, and its operand.
    fn activation(&mut self, node: &Node) -> Option<(Activation, ValueId)> {
        // The last step of an activation multiplies.
        if !matches!(node.op, Op::Mul(_) | Op::MulScalar(_) | Op::Elementwise(_)) {
            return None;
        }
        for steps in self.cones(node) {
            let x = self.only_operand(&steps)?;
            if self.graph.value(x).shape != self.graph.value(node.output()).shape {
                continue;
            }
            let Some(values) = self.evaluate(&steps, x) else {
                continue;
            };
            let found = ACTIVATIONS
                .into_iter()
                .find(|activation| self.is_equal(&values, *activation));
            if let Some(activation) = found {
                return Some((activation, x));
            }
        }
        None
    }

    /// Returns the sets of steps before `node` that read one value, from the smallest on.
    fn cones<'b>(&'b self, node: &'b Node) -> Vec<Vec<&'b Node>> {
        let mut steps = vec![node];
        let mut cones = Vec::new();
        loop {
            let open = self.open_operands(&steps);
            if open.len() == 1 && steps.len() > 1 {
                cones.push(steps.clone());
            }
            // The operand that is computed last is not one of the others.
            let next = open
                .iter()
                .filter_map(|id| self.producers.get(id))
                .max_by_key(|node| node.output());
            match next.filter(|next| is_step(next) && steps.len() < MOST_STEPS) {
                Some(next) => steps.push(next),
                None => return cones,
            }
        }
    }

    /// Returns the operands that neither are constants nor computed by one of the steps.
    fn open_operands(&self, steps: &[&Node]) -> Vec<ValueId> {
        let mut open: Vec<ValueId> = Vec::new();
        for &id in steps.iter().flat_map(|step| &step.inputs) {
            let is_inside = steps.iter().any(|step| step.output() == id);
            if !is_inside && !self.graph.value(id).is_constant() && !open.contains(&id) {
                open.push(id);
            }
        }
        open
    }

    fn only_operand(&self, steps: &[&Node]) -> Option<ValueId> {
        match self.open_operands(steps)[..] {
            [x] => Some(x),
            _ => None,
        }
    }

    /// Computes the steps, last one first in the list, at the points. `None` if a constant is not a single number.
    fn evaluate(&self, steps: &[&Node], x: ValueId) -> Option<Vec<f64>> {
        let mut values: HashMap<ValueId, Array> = HashMap::new();
        values.insert(x, Array::new([self.points.len()], self.points.clone())?);
        let mut ordered = steps.to_vec();
        ordered.sort_by_key(|step| step.output());
        for step in &ordered {
            for &id in &step.inputs {
                if let Some(tensor) = &self.graph.value(id).constant {
                    if tensor.len() != 1 {
                        return None;
                    }
                    values.insert(
                        id,
                        Array::new([1], tensor.to_f32().iter().map(|&x| x.into()).collect())?,
                    );
                }
            }
            let operands: Option<Vec<&Array>> = step.inputs.iter().map(|id| values.get(id)).collect();
            let result = step.op.eval(&operands?).ok()?.into_iter().next()?;
            if result.values().len() != self.points.len() {
                return None;
            }
            values.insert(step.output(), result);
        }
        Some(values.remove(&steps.first()?.output())?.into_values())
    }

    fn is_equal(&self, values: &[f64], activation: Activation) -> bool {
        let expected: Vec<f64> = self.points.iter().map(|&x| activation.apply(x)).collect();
        let largest = expected.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        let mut pairs = values.iter().zip(&expected);
        pairs.all(|(value, expected)| (value - expected).abs() <= TOLERANCE * largest)
    }
}

/// Returns true for nodes that compute each element from the elements at its place.
fn is_step(node: &Node) -> bool {
    match &node.op {
        Op::Elementwise(op) => !op.is_integer() && op.integer_operands().iter().all(|is_integer| !is_integer),
        Op::Mul(_) | Op::MulScalar(_) | Op::Add(_) => true,
        Op::Activation(activation) => *activation == Activation::Tanh,
        _ => false,
    }
}
