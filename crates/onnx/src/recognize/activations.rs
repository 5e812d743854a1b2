//! Activations in several steps, such as `x/2 · (1 + erf(x/√2))`. They are recognised by their values.

use hipvit_graph::op::{Activation, Op};
use hipvit_graph::reference::Array;
use hipvit_graph::{Graph, Node, Result, ValueId, rewrite};

use super::steps::{Steps, is_arithmetic, is_close};

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
    let finder = Finder {
        steps: Steps::new(graph),
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
    steps: Steps<'a>,
    points: Vec<f64>,
}

impl Finder<'_> {
    /// Returns the activation that `node` ends, and its operand.
    fn activation(&self, node: &Node) -> Option<(Activation, ValueId)> {
        // The last step of an activation multiplies.
        if !matches!(node.op, Op::Mul(_) | Op::MulScalar(_) | Op::Elementwise(_)) {
            return None;
        }
        for steps in self.cones(node) {
            let [x] = self.steps.open_operands(&steps)[..] else {
                return None;
            };
            let shape = |id: ValueId| &self.steps.graph.value(id).shape;
            if shape(x) != shape(node.output()) {
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
            let open = self.steps.open_operands(&steps);
            if open.len() == 1 && steps.len() > 1 {
                cones.push(steps.clone());
            }
            let next = self.steps.before(&open);
            match next.filter(|next| is_step(next) && steps.len() < MOST_STEPS) {
                Some(next) => steps.push(next),
                None => return cones,
            }
        }
    }

    fn evaluate(&self, steps: &[&Node], x: ValueId) -> Option<Vec<f64>> {
        let points = Array::new([self.points.len()], self.points.clone())?;
        let fits = |result: &Array| result.values().len() == self.points.len();
        self.steps.evaluate(steps, (x, points), fits)
    }

    fn is_equal(&self, values: &[f64], activation: Activation) -> bool {
        let expected: Vec<f64> = self.points.iter().map(|&x| activation.apply(x)).collect();
        is_close(values, &expected, TOLERANCE)
    }
}

/// Returns true for nodes that compute each element from the elements at its place.
fn is_step(node: &Node) -> bool {
    is_arithmetic(&node.op) || matches!(node.op, Op::Activation(Activation::Tanh))
}
