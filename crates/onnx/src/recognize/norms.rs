//! LayerNorm and RMSNorm in several steps, such as `(x − mean) / √(variance + ε) · weight + bias`. The steps before the weight are recognised by
//! their values.

use hipvit_graph::op::{LayerNorm, Op, Reduce, RmsNorm};
use hipvit_graph::reference::Array;
use hipvit_graph::tensor::Tensor;
use hipvit_graph::{Graph, Node, Provenance, Result, Rewriter, ValueId, rewrite};

use super::biases::vector;
use super::steps::{Steps, is_arithmetic, is_close};
use super::view::constant_sum;

/// Most steps of a norm.
const MOST_STEPS: usize = 14;

/// Largest difference from a norm, relative to its largest magnitude. Constants are rounded to f32.
const TOLERANCE: f64 = 1e-6;

/// Largest epsilon that norms have.
const MOST_EPSILON: f64 = 1e-2;

/// A norm without a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Norm {
    Layer(LayerNorm),
    Rms(RmsNorm),
}

impl Norm {
    fn apply(self, x: &[f64]) -> Vec<f64> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (offset, epsilon) = match self {
            Self::Layer(LayerNorm { epsilon }) => (mean(x), epsilon),
            Self::Rms(RmsNorm { epsilon }) => (0.0, epsilon),
        };
        let centred: Vec<f64> = x.iter().map(|x| x - offset).collect();
        let squares: Vec<f64> = centred.iter().map(|x| x * x).collect();
        let deviation = (mean(&squares) + f64::from(epsilon)).sqrt();
        centred.iter().map(|x| x / deviation).collect()
    }
}

/// Replaces the last step of each norm, and the multiplication by its weight and the addition of its bias. The other steps are dropped if nothing
/// else reads them.
pub(super) fn run(graph: &Graph) -> Result<Graph> {
    // Rows along other axes than the last one are none of these norms, and most graphs have no reductions.
    if !graph.nodes().iter().any(|node| is_reduction(graph, node)) {
        return Ok(graph.clone());
    }
    let finder = Finder {
        steps: Steps::new(graph),
    };
    let rewritten = rewrite(graph, |rewriter, node| {
        let Some((norm, x)) = finder.norm(node) else {
            return Ok(None);
        };
        let channels = graph.value(x).shape.last().copied().unwrap_or(0);
        let mut operands = vec![rewriter.map(x)];
        let (op, parameters): (Op, &[f32]) = match norm {
            Norm::Layer(op) => (op.into(), &[1.0, 0.0]),
            Norm::Rms(op) => (op.into(), &[1.0]),
        };
        for &number in parameters {
            let Some(tensor) = Tensor::from_f32([channels], vec![number; channels]) else {
                return Ok(None);
            };
            operands.push(rewriter.constant(Provenance::Number(number), tensor));
        }
        rewriter.emit(node.role, &node.name, op, operands).map(Some)
    })?;
    let graph = rewritten.graph;
    let rewritten = rewrite(&graph, |rewriter, node| {
        with_parameter(rewriter, &graph, node, true)
    })?;
    let graph = rewritten.graph;
    let rewritten = rewrite(&graph, |rewriter, node| {
        with_parameter(rewriter, &graph, node, false)
    })?;
    Ok(rewritten.graph)
}

/// Returns true for reductions of rows along the last axis.
fn is_reduction(graph: &Graph, node: &Node) -> bool {
    match &node.op {
        Op::Reduce(Reduce { axes, keep, .. }) => {
            let rank = graph.value(node.inputs[0]).shape.len();
            *keep && rank > 1 && axes[..] == [rank - 1]
        }
        _ => false,
    }
}

struct Finder<'a> {
    steps: Steps<'a>,
}

impl Finder<'_> {
    /// Returns the norm that `node` ends, and its operand.
    fn norm(&self, node: &Node) -> Option<(Norm, ValueId)> {
        // The last step divides, or multiplies by a reciprocal.
        if !matches!(node.op, Op::Mul(_) | Op::Elementwise(_)) || node.inputs.len() != 2 {
            return None;
        }
        let shape = &self.steps.graph.value(node.output()).shape;
        let &channels = shape.last()?;
        if channels < 2
            || node
                .inputs
                .iter()
                .any(|&id| self.steps.graph.value(id).is_constant())
        {
            return None;
        }
        let mut steps = vec![node];
        // A LayerNorm is the RMSNorm of its centred rows, which are found first.
        let mut of_centred = None;
        loop {
            let open = self.steps.open_operands(&steps);
            let reduces = steps.iter().any(|step| is_reduction(self.steps.graph, step));
            if let ([x], true) = (&open[..], reduces)
                && self.steps.graph.value(*x).shape == *shape
                && let Some(norm) = self.recognised(&steps, *x, channels)
            {
                match norm {
                    Norm::Layer(_) => return Some((norm, *x)),
                    Norm::Rms(_) => of_centred = Some((norm, *x)),
                }
            }
            let next = self.steps.before(&open);
            match next.filter(|next| self.is_step(next) && steps.len() < MOST_STEPS) {
                Some(next) => steps.push(next),
                None => return of_centred,
            }
        }
    }

    /// Returns true for nodes that compute a row from a row.
    fn is_step(&self, node: &Node) -> bool {
        is_arithmetic(&node.op) || is_reduction(self.steps.graph, node)
    }

    /// Returns the norm that the steps compute. Its epsilon is the only number that is not known before.
    fn recognised(&self, steps: &[&Node], x: ValueId, channels: usize) -> Option<Norm> {
        // The norm of a tiny row is the row divided by the root of epsilon.
        let tiny = row(channels, 0, 1e-12);
        let y = self.evaluate(steps, x, &tiny)?;
        [true, false].into_iter().find_map(|centers| {
            let mean = tiny.iter().sum::<f64>() / channels as f64;
            let offset = if centers { mean } else { 0.0 };
            let products: f64 = y.iter().zip(&tiny).map(|(y, x)| y * (x - offset)).sum();
            let squares: f64 = tiny.iter().map(|x| (x - offset).powi(2)).sum();
            let deviation = squares / products;
            let epsilon = deviation * deviation - squares / channels as f64;
            // The difference of equal numbers is not exactly 0.
            let epsilon = if epsilon.abs() < 1e-20 { 0.0 } else { epsilon };
            if !(0.0..=MOST_EPSILON).contains(&epsilon) {
                return None;
            }
            let epsilon = epsilon as f32;
            let norm = if centers {
                Norm::Layer(LayerNorm { epsilon })
            } else {
                Norm::Rms(RmsNorm { epsilon })
            };
            let mut scales = [1e-3, 0.1, 1.0, 30.0].into_iter().zip(1..);
            scales
                .all(|(scale, seed)| self.is_equal(steps, x, &row(channels, seed, scale), norm))
                .then_some(norm)
        })
    }

    fn is_equal(&self, steps: &[&Node], x: ValueId, row: &[f64], norm: Norm) -> bool {
        let Some(values) = self.evaluate(steps, x, row) else {
            return false;
        };
        let expected = norm.apply(row);
        is_close(&values, &expected, TOLERANCE)
    }

    /// Computes the steps for one row of `x`. `None` if a constant is not a single number.
    fn evaluate(&self, steps: &[&Node], x: ValueId, row: &[f64]) -> Option<Vec<f64>> {
        let rank = self.steps.graph.value(x).shape.len();
        let mut shape = vec![1; rank];
        *shape.last_mut()? = row.len();
        let x = (x, Array::new(shape, row.to_vec())?);
        let result = self.steps.evaluate(steps, x, |_| true)?;
        (result.len() == row.len()).then_some(result)
    }
}

/// Returns a row of numbers around `0.7 · scale`, the same on every run.
fn row(channels: usize, seed: u64, scale: f64) -> Vec<f64> {
    let number = |index: usize| {
        let hash = (index as u64 + 1 + seed * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (hash as f64 / f64::from(1 << 23) - 0.3) * scale
    };
    (0..channels).map(number).collect()
}

/// Makes the factor (`is_weight`) or the offset for each channel that follows a norm one of its operands.
fn with_parameter(
    rewriter: &mut Rewriter<'_>,
    graph: &Graph,
    node: &Node,
    is_weight: bool,
) -> Result<Option<ValueId>> {
    let Some([x, parameter]) = with_constant(graph, node, is_weight) else {
        return Ok(None);
    };
    let Some(norm) = rewriter.sole_producer(x) else {
        return Ok(None);
    };
    let index = match (&norm.op, is_weight) {
        (Op::LayerNorm(_) | Op::RmsNorm(_), true) => 1,
        (Op::LayerNorm(_), false) => 2,
        _ => return Ok(None),
    };
    let neutral = if is_weight { 1.0 } else { 0.0 };
    let old = graph.value(norm.inputs[index]);
    let is_neutral = old
        .constant
        .as_ref()
        .is_some_and(|tensor| tensor.to_f32().iter().all(|&x| x == neutral));
    // A weight multiplies the bias too.
    let has_bias = is_weight
        && norm.inputs.get(2).is_some_and(|&bias| {
            let bias = graph.value(bias).constant.as_ref();
            bias.is_none_or(|bias| bias.to_f32().iter().any(|&x| x != 0.0))
        });
    let channels = graph.value(x).shape.last().copied().unwrap_or(0);
    if !is_neutral || has_bias || old.shape[..] != [channels] {
        return Ok(None);
    }
    let Some(vector) = vector(graph, parameter, channels) else {
        return Ok(None);
    };
    let parameter = match vector {
        Some((provenance, tensor)) => rewriter.constant(provenance, tensor),
        None => rewriter.map(parameter),
    };
    let mut inputs = rewriter.map_all(&norm.inputs);
    inputs[index] = parameter;
    rewriter
        .emit(norm.role, &norm.name, norm.op.clone(), inputs)
        .map(Some)
}

/// Returns the operands of a product or a sum: first the one that is computed, then a constant.
fn with_constant(graph: &Graph, node: &Node, is_product: bool) -> Option<[ValueId; 2]> {
    if !is_product {
        return constant_sum(graph, node);
    }
    let [x, y] = match (&node.op, &node.inputs[..]) {
        (Op::Mul(_), &[x, y]) => [x, y],
        (Op::Elementwise(op), &[x, y]) if op.formula().to_string() == "mul(x0, x1)" => [x, y],
        _ => return None,
    };
    match [x, y].map(|id| graph.value(id).is_constant()) {
        [false, true] => Some([x, y]),
        [true, false] => Some([y, x]),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use hipvit_graph::op::{Elementwise, Mul, MulScalar, ReduceKind};
    use hipvit_graph::pattern::Float;
    use hipvit_graph::{DType, Role};

    use super::*;

    /// Appends nodes to a graph.
    struct Made(Graph);

    impl Made {
        fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
            let name = format!("node {}", self.0.nodes().len());
            self.0
                .push_node(Role::Other, name, op.into(), inputs.to_vec())
                .unwrap()
                .output()
        }

        fn mean(&mut self, x: ValueId) -> ValueId {
            let axes = vec![2];
            let op = Reduce {
                kind: ReduceKind::Mean,
                axes,
                keep: true,
            };
            self.push(op, &[x])
        }

        fn vector(&mut self, name: &str, elements: &[f32]) -> ValueId {
            let tensor = Tensor::from_f32([elements.len()], elements.to_vec()).unwrap();
            self.0.constant(name, tensor)
        }

        fn done(mut self, y: ValueId) -> Graph {
            self.0.add_output("y", y).unwrap();
            run(&self.0).unwrap()
        }
    }

    fn begin() -> (Made, ValueId) {
        let graph = Graph::of_values("test", "x", [1, 3, 4], DType::F32).unwrap();
        let x = graph.input();
        (Made(graph), x)
    }

    fn ops(graph: &Graph) -> Vec<&'static str> {
        graph.nodes().iter().map(|node| node.op.name()).collect()
    }

    fn binary(formula: fn(Float, Float) -> Float) -> Elementwise {
        Elementwise::binary(formula).unwrap()
    }

    /// As torch's exporter writes LayerNorm before operator set 17.
    #[test]
    fn layer_norm_in_steps_becomes_one_op() {
        let (mut graph, x) = begin();
        let mean = graph.mean(x);
        let centred = graph.push(binary(|x, y| x - y), &[x, mean]);
        let squares = graph.push(Elementwise::unary(|x| x.pow(2.0)).unwrap(), &[centred]);
        let variance = graph.mean(squares);
        let shifted = graph.push(Elementwise::unary(|x| x + 1e-6).unwrap(), &[variance]);
        let deviation = graph.push(Elementwise::unary(|x| x.sqrt()).unwrap(), &[shifted]);
        let quotient = graph.push(binary(|x, y| x / y), &[centred, deviation]);
        let weight = graph.vector("weight", &[1.0, 2.0, 3.0, 4.0]);
        let bias = graph.vector("bias", &[0.5, 0.0, -1.0, 2.0]);
        let scaled = graph.push(binary(|x, y| x * y), &[quotient, weight]);
        let y = graph.push(binary(|x, y| x + y), &[bias, scaled]);
        let graph = graph.done(y);
        let [node] = graph.nodes() else {
            panic!("{:?}", ops(&graph));
        };
        let Op::LayerNorm(LayerNorm { epsilon }) = node.op else {
            panic!("{}", node.op);
        };
        assert!((epsilon - 1e-6).abs() < 1e-12, "{epsilon}");
        assert_eq!(graph.value(node.inputs[1]).name, "weight");
        assert_eq!(graph.value(node.inputs[2]).name, "bias");
    }

    /// As transformers' models write it: `weight * (x * rsqrt(mean(x²) + ε))`.
    #[test]
    fn rms_norm_in_steps_becomes_one_op() {
        let (mut graph, x) = begin();
        let squares = graph.push(Mul, &[x, x]);
        let mean = graph.mean(squares);
        let shifted = graph.push(Elementwise::unary(|x| x + 1e-5).unwrap(), &[mean]);
        let root = graph.push(Elementwise::unary(|x| x.sqrt()).unwrap(), &[shifted]);
        let inverse = graph.push(Elementwise::unary(|x| x.reciprocal()).unwrap(), &[root]);
        let normed = graph.push(binary(|x, y| x * y), &[x, inverse]);
        let weight = graph.vector("weight", &[1.0, 2.0, 3.0, 4.0]);
        let y = graph.push(binary(|x, y| x * y), &[weight, normed]);
        let graph = graph.done(y);
        let [node] = graph.nodes() else {
            panic!("{:?}", ops(&graph));
        };
        assert!(matches!(node.op, Op::RmsNorm(RmsNorm { epsilon }) if (epsilon - 1e-5).abs() < 1e-11));
        assert_eq!(graph.value(node.inputs[1]).name, "weight");
    }

    #[test]
    fn other_steps_stay() {
        // The deviation of the samples: the sum of squares is divided by one less.
        let (mut graph, x) = begin();
        let mean = graph.mean(x);
        let centred = graph.push(binary(|x, y| x - y), &[x, mean]);
        let squares = graph.push(Mul, &[centred, centred]);
        let variance = graph.mean(squares);
        let unbiased = graph.push(MulScalar(4.0 / 3.0), &[variance]);
        let deviation = graph.push(Elementwise::unary(|x| (x + 1e-6).sqrt()).unwrap(), &[unbiased]);
        let y = graph.push(binary(|x, y| x / y), &[centred, deviation]);
        assert_eq!(graph.done(y).nodes().len(), 7);
        // A softmax without its exponentials.
        let (mut graph, x) = begin();
        let sum = graph.mean(x);
        let y = graph.push(binary(|x, y| x / y), &[x, sum]);
        assert_eq!(graph.done(y).nodes().len(), 2);
    }
}
