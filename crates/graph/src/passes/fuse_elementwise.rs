//! Fuses elementwise ops into the elementwise ops that read their results, so that these are neither stored nor read.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::op::elementwise::Builder;
use crate::op::{Add, Elementwise, Formula, Mul, MulScalar, Op};
use crate::pattern::{Float, Operator, PatternError, Type, floats};
use crate::rewrite::{Rewriter, Rewritten, rewrite};
use crate::value::ValueId;

/// Maximum number of operators of a fused op, whose intermediate results are in registers.
const OPERATORS: usize = 96;

/// Counts the nodes that took over others or constants.
///
/// Sums and products alone are not fused: a sum has a better place in the norm that reads it.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    // What one batch broadcasts has another shape only where the batch is not 1.
    let shapes = [graph.shapes(1)?, graph.shapes(2)?];
    let mut groups: HashMap<ValueId, Group> = HashMap::new();
    rewrite(graph, |rewriter, node| {
        let Some(own) = Group::of(graph, node, &shapes[1])? else {
            return Ok(None);
        };
        let group = own
            .joined(rewriter, node, &shapes, &groups)
            .unwrap_or_else(|| own.clone());
        let replaces = group != own && group.has_function;
        let op = group.op();
        let operands = group.operands.clone();
        groups.insert(node.output(), group);
        if !replaces {
            return Ok(None);
        }
        let inputs = rewriter.map_all(&operands);
        rewriter.emit(node.role, &node.name, op, inputs).map(Some)
    })
}

/// Shapes of all values at batch 1 and 2.
type Shapes = [Vec<Vec<usize>>; 2];

/// Elementwise ops as one formula.
#[derive(Clone, PartialEq)]
struct Group {
    formula: Formula,
    /// Old values, each once.
    operands: Vec<ValueId>,
    /// For each operand, true if it is in i32.
    integers: Vec<bool>,
    is_integer: bool,
    /// True if there is more than sums and products.
    has_function: bool,
}

impl Group {
    /// Returns the node as a group. `None` if it is no elementwise op.
    fn of(graph: &Graph, node: &Node, shapes: &[Vec<usize>]) -> Result<Option<Self>> {
        let [x, y] = [0, 1].map(floats::operand);
        let plain = |value: Float| Elementwise::new(node.inputs.len(), value);
        let op = match &node.op {
            Op::Elementwise(op) => Ok(op.clone()),
            Op::Add(Add) => plain(x + y),
            Op::Mul(Mul) => plain(x * y),
            Op::MulScalar(MulScalar(factor)) => plain(x * *factor),
            Op::Activation(activation) => plain(Elementwise::of_activation(*activation)),
            _ => return Ok(None),
        };
        let invalid = |error: PatternError| Error::graph(&node.name, error.to_string());
        let op = op.map_err(invalid)?;
        // A product may have another rank than NumPy gives it.
        let operands: Vec<&[usize]> = node
            .inputs
            .iter()
            .map(|id| shapes[id.index()].as_slice())
            .collect();
        let result = Op::from(op.clone()).shapes(&operands);
        let is_rounded = graph.value(node.output()).rounding.is_some();
        if is_rounded || result.ok().as_deref() != Some(&[shapes[node.output().index()].clone()]) {
            return Ok(None);
        }
        Ok(Some(Self {
            formula: op.formula().clone(),
            operands: node.inputs.clone(),
            integers: op.integer_operands().to_vec(),
            is_integer: op.is_integer(),
            has_function: matches!(node.op, Op::Elementwise(_) | Op::Activation(_)),
        }))
    }

    /// Returns the group with the groups that compute its operands, and with its constants of one element. `None` if it would be too large.
    fn joined(
        &self,
        rewriter: &Rewriter<'_>,
        node: &Node,
        shapes: &Shapes,
        groups: &HashMap<ValueId, Self>,
    ) -> Option<Self> {
        let mut builder = Builder::default();
        let mut all = Operands::default();
        let mut has_function = self.has_function;
        let result = builder.formula(&self.formula, |builder, index| {
            let index = index as usize;
            let id = self.operands[index];
            if let Some(value) = self.constant(rewriter, index, shapes) {
                return builder.constant(value);
            }
            let is_read_elsewhere =
                || rewriter.readers(id) != node.inputs.iter().filter(|&&input| input == id).count();
            let same_shape = |id: ValueId| {
                shapes
                    .iter()
                    .all(|of| of[id.index()] == of[node.output().index()])
            };
            match groups.get(&id).filter(|_| same_shape(id) && !is_read_elsewhere()) {
                Some(inner) => {
                    has_function |= inner.has_function;
                    inner.inline(builder, &mut all)
                }
                None => builder.operand(all.index(id, self.integers[index])),
            }
        });
        let formula = builder.finish(result);
        // A result of constants alone has no shape.
        if all.ids.is_empty() || all.ids.len() > Elementwise::MAX_OPERANDS || formula.operators() > OPERATORS
        {
            return None;
        }
        Some(Self {
            formula,
            operands: all.ids,
            integers: all.integers,
            is_integer: self.is_integer,
            has_function,
        })
    }

    /// Adds the formula to another one. Returns the step of its result.
    fn inline(&self, builder: &mut Builder, all: &mut Operands) -> usize {
        let result = builder.formula(&self.formula, |builder, index| {
            let index = index as usize;
            builder.operand(all.index(self.operands[index], self.integers[index]))
        });
        let is_truth = self.formula.steps()[self.formula.result()].ty == Type::Bool;
        if self.is_integer && !is_truth {
            builder.float(Operator::Trunc, vec![result])
        } else {
            result
        }
    }

    /// Returns the element of an operand that is a constant of one element, and without which the result has the same shape.
    fn constant(&self, rewriter: &Rewriter<'_>, index: usize, [shapes, _]: &Shapes) -> Option<f32> {
        let id = self.operands[index];
        let tensor = rewriter.tensor(id).filter(|tensor| tensor.len() == 1)?;
        let value = *tensor.to_f32().first()?;
        let rank = shapes[id.index()].len();
        let mut others = self
            .operands
            .iter()
            .filter(|&&other| rewriter.tensor(other).is_none());
        others
            .any(|other| shapes[other.index()].len() >= rank)
            .then_some(value)
    }

    fn op(&self) -> Elementwise {
        let integers = self.integers.iter().enumerate();
        let integers: Vec<usize> = integers.filter_map(|(index, &is)| is.then_some(index)).collect();
        let op = Elementwise::of_formula(self.formula.clone(), self.operands.len());
        let op = op.with_integer_operands(&integers);
        if self.is_integer { op.into_integers() } else { op }
    }
}

/// Operands of a formula that is being built.
#[derive(Default)]
struct Operands {
    ids: Vec<ValueId>,
    integers: Vec<bool>,
}

impl Operands {
    /// Returns the index of an operand, which is added if it is new.
    fn index(&mut self, id: ValueId, is_integer: bool) -> u32 {
        let index = self.ids.iter().position(|&known| known == id).unwrap_or_else(|| {
            self.ids.push(id);
            self.integers.push(is_integer);
            self.ids.len() - 1
        });
        // At most as many as a graph has values, whose ids are u32.
        index as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Activation;
    use crate::tensor::{Input, Tensor};
    use crate::{OutputKind, Role, interpret};

    struct Model {
        graph: Graph,
    }

    impl Model {
        fn push(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
            self.graph.push(Role::Other, name, op, inputs).unwrap()
        }

        fn constant(&mut self, name: &str, shape: &[usize], values: Vec<f32>) -> ValueId {
            self.graph
                .constant(name, Tensor::from_f32(shape.to_vec(), values).unwrap())
        }

        /// Runs the pass, and compares the results at batch 2.
        fn fused(mut self, output: ValueId) -> Vec<String> {
            self.graph.set_output(OutputKind::Tokens, output);
            let Rewritten { graph, .. } = run(&self.graph).unwrap();
            graph.verify().unwrap();
            let values: Vec<f32> = (0..24).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
            let [before, after] = [&self.graph, &graph]
                .map(|graph| interpret(graph, 2, Input::Values(&values)).unwrap().remove(0).1);
            assert!(before.iter().any(|&value| value != 0.0));
            for (before, after) in before.iter().zip(&after) {
                assert!(
                    (before - after).abs() <= 1e-6 * before.abs(),
                    "{before} became {after}"
                );
            }
            graph.nodes().iter().map(|node| node.op.to_string()).collect()
        }
    }

    /// A graph of tokens `[1, 3, 4]`.
    fn model() -> (Model, ValueId) {
        let graph = Graph::of_tokens("test", [3, 4]);
        let input = graph.input();
        (Model { graph }, input)
    }

    #[test]
    fn chains_become_one_node() {
        let (mut model, x) = model();
        let row = model.constant("row", &[4], vec![0.5, -1.0, 2.0, 0.25]);
        let one = model.constant("one", &[1, 1], vec![1.5]);
        let sum = model.push("sum", Add, &[x, x]);
        let product = model.push("product", Mul, &[sum, row]);
        let gate = model.push(
            "gate",
            Elementwise::binary(|x, y| (x + y).sigmoid()).unwrap(),
            &[product, one],
        );
        let scaled = model.push("scaled", MulScalar(0.5), &[gate]);
        let silu = model.push("silu", Op::Activation(Activation::Silu), &[scaled]);
        assert_eq!(model.fused(silu), ["elementwise of 7 operators"]);
    }

    #[test]
    fn a_value_with_several_readers_is_kept() {
        let (mut model, x) = model();
        let gate = model.push("gate", Elementwise::unary(|x| x.sigmoid()).unwrap(), &[x]);
        let [left, right] = [Float::sin as fn(&Float) -> Float, Float::cos];
        let left = model.push("left", Elementwise::unary(|x| left(&x)).unwrap(), &[gate]);
        let right = model.push("right", Elementwise::unary(|x| right(&x)).unwrap(), &[gate]);
        let sum = model.push("sum", Add, &[left, right]);
        assert_eq!(
            model.fused(sum),
            ["elementwise sigmoid(x0)", "elementwise add(sin(x0), cos(x0))"]
        );
    }

    #[test]
    fn a_value_that_one_node_reads_twice_is_fused() {
        let (mut model, x) = model();
        let tanh = model.push("tanh", Elementwise::unary(|x| x.tanh()).unwrap(), &[x]);
        let square = model.push("square", Mul, &[tanh, tanh]);
        assert_eq!(model.fused(square), ["elementwise mul(tanh(x0), tanh(x0))"]);
    }

    #[test]
    fn sums_and_products_alone_stay() {
        let (mut model, x) = model();
        let sum = model.push("sum", Add, &[x, x]);
        let product = model.push("product", MulScalar(3.0), &[sum]);
        assert_eq!(model.fused(product), ["add", "mul_scalar 3"]);
        let (mut model, x) = self::model();
        let sum = model.push("sum", Add, &[x, x]);
        let product = model.push("product", MulScalar(3.0), &[sum]);
        let relu = model.push("relu", Op::Activation(Activation::Relu), &[product]);
        assert_eq!(model.fused(relu), ["elementwise max(mul(add(x0, x0), 3), 0)"]);
    }

    #[test]
    fn a_smaller_operand_is_not_computed_again() {
        let (mut model, x) = model();
        let row = model.constant("row", &[4], vec![0.5, -1.0, 2.0, 0.25]);
        let gate = model.push("gate", Elementwise::unary(|x| x.exp()).unwrap(), &[row]);
        let gated = model.push(
            "gated",
            Elementwise::binary(|x, y| x.abs() * y).unwrap(),
            &[x, gate],
        );
        assert_eq!(
            model.fused(gated),
            ["elementwise exp(x0)", "elementwise mul(abs(x0), x1)"]
        );
    }

    #[test]
    fn integers_are_truncated_between_ops() {
        let (mut model, x) = model();
        let whole = model.push(
            "whole",
            Elementwise::unary(|x| x * 2.0).unwrap().into_integers(),
            &[x],
        );
        let is_odd = Elementwise::unary(|x| x.modulo(2.0).equal(1.0)).unwrap();
        let is_odd = model.push(
            "odd",
            is_odd.into_integers().with_integer_operands(&[0]),
            &[whole],
        );
        let chosen = Elementwise::ternary(|odd, x, y| Float::select(&odd.to_bool(), x, y * 2.0)).unwrap();
        let chosen = model.push("chosen", chosen.with_integer_operands(&[0]), &[is_odd, x, x]);
        let ops = model.fused(chosen);
        assert_eq!(ops.len(), 1, "{ops:?}");
        assert!(!ops[0].contains("i32"), "{ops:?}");
    }

    #[test]
    fn large_groups_are_not_joined() {
        let (mut model, x) = model();
        let mut last = x;
        for index in 0..Elementwise::MAX_OPERANDS {
            let row = model.constant(&format!("row{index}"), &[4], vec![index as f32, 1.0, 2.0, 3.0]);
            let op = Elementwise::binary(|x, y| (x + y).tanh()).unwrap();
            last = model.push(&format!("sum{index}"), op, &[last, row]);
        }
        assert_eq!(model.fused(last).len(), 2);
    }
}
