//! Expressions of operands, element by element.

mod broadcast;
mod error_bound;
mod evaluate;
mod formula;
mod functions;
#[cfg(test)]
mod tests;

use std::fmt;

pub use self::broadcast::Broadcast;
pub(crate) use self::formula::Builder;
pub use self::formula::Formula;
use self::functions::{ACTIVATIONS_OF_ONNX, APPROXIMATE, ARITHMETIC, Function};
use super::activation::{ACTIVATIONS, wide};
use super::operands::{count, one};
use super::{
    Activation, Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Reduce, ReduceKind,
    Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, Role, activation};
use crate::dtype::DType;
use crate::pattern::{Expression, Float, PatternError, floats};
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x0, x1, …) → f(x0, x1, …)` for each element, with NumPy's broadcasting of the operands. Computed in f32. Truth values are 1 and 0.
///
/// Operands and result are in the plan's dtype or in i32. Integers are exact up to 2²⁴.
///
/// ```
/// use hipvit_graph::op::Elementwise;
///
/// let gate = Elementwise::binary(|x, gate| x * gate.sigmoid())?;
/// assert_eq!(gate.formula().to_string(), "mul(x0, sigmoid(x1))");
/// # Ok::<(), hipvit_graph::pattern::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Elementwise {
    formula: Formula,
    /// For each operand, true if it is in i32.
    integers: Vec<bool>,
    is_integer: bool,
}

impl Elementwise {
    /// Maximum number of operands on GPUs, whose kernels take them as arguments.
    pub const MAX_OPERANDS: usize = 8;

    /// Creates the op of an expression of `operands` operands, which [`floats::operand`] names.
    ///
    /// # Errors
    ///
    /// [`PatternError`] if the expression reads anything but these operands and constants.
    pub fn new(operands: usize, expression: impl Into<Expression>) -> Result<Self, PatternError> {
        let formula = Formula::new(&expression.into(), operands)?;
        Ok(Self::of_formula(formula, operands))
    }

    pub(crate) fn of_formula(formula: Formula, operands: usize) -> Self {
        Self {
            formula,
            integers: vec![false; operands],
            is_integer: false,
        }
    }

    /// Creates the op of a function of one operand.
    ///
    /// # Errors
    ///
    /// [`PatternError`] if the function returns an expression of anything but its operand.
    pub fn unary<E: Into<Expression>>(function: impl FnOnce(Float) -> E) -> Result<Self, PatternError> {
        Self::new(1, function(floats::operand(0)))
    }

    /// Creates the op of a function of two operands.
    ///
    /// # Errors
    ///
    /// [`PatternError`] if the function returns an expression of anything but its operands.
    pub fn binary<E: Into<Expression>>(
        function: impl FnOnce(Float, Float) -> E,
    ) -> Result<Self, PatternError> {
        Self::new(2, function(floats::operand(0), floats::operand(1)))
    }

    /// Creates the op of a function of three operands.
    ///
    /// # Errors
    ///
    /// [`PatternError`] if the function returns an expression of anything but its operands.
    pub fn ternary<E: Into<Expression>>(
        function: impl FnOnce(Float, Float, Float) -> E,
    ) -> Result<Self, PatternError> {
        let [x, y, z] = [0, 1, 2].map(floats::operand);
        Self::new(3, function(x, y, z))
    }

    /// Makes the result integers in i32, which are truncated.
    #[must_use]
    pub fn into_integers(mut self) -> Self {
        self.is_integer = true;
        self
    }

    /// Declares that these operands are integers in i32. Indices without an operand have no effect.
    #[must_use]
    pub fn with_integer_operands(mut self, operands: &[usize]) -> Self {
        for &index in operands {
            if let Some(is_integer) = self.integers.get_mut(index) {
                *is_integer = true;
            }
        }
        self
    }

    /// Returns the expression.
    pub fn formula(&self) -> &Formula {
        &self.formula
    }

    /// Returns, for each operand, true if it is in i32.
    pub fn integer_operands(&self) -> &[bool] {
        &self.integers
    }

    /// Returns true if the result is in i32.
    pub fn is_integer(&self) -> bool {
        self.is_integer
    }

    /// Returns the strides of operands of these shapes.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the shapes do not broadcast to one.
    pub fn broadcast(&self, operands: &[&[usize]]) -> Result<Broadcast, OpError> {
        Ok(Broadcast::new(operands, &broadcast::shape(operands)?))
    }

    /// Returns the formula of an activation function.
    pub(crate) fn of_activation(activation: Activation) -> Float {
        let x = floats::operand(0);
        match activation {
            Activation::GeluErf => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::QuickGelu => x.swish(1.702),
            Activation::Silu => x.swish(1.0),
            Activation::Relu => x.relu(),
            Activation::Tanh => x.tanh(),
        }
    }
}

impl Definition for Elementwise {
    const NAME: &'static str = "elementwise";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.formula)?;
        f.write_str(if self.is_integer { " → i32" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        if operands.len() != self.integers.len() {
            return Err(OpError::Count {
                expected: self.integers.len(),
                found: operands.len(),
            });
        }
        one(broadcast::shape(operands)?)
    }

    fn result_dtype(&self, _index: usize, dtype: DType) -> DType {
        if self.is_integer { DType::I32 } else { dtype }
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match self.integers.get(index) {
            Some(true) => DType::I32,
            _ => dtype,
        }
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        self.formula.operators() as u64 * count(&results[0])
    }

    /// The plan checks that the operand has the shape and dtype of the result.
    fn may_alias(&self) -> Option<usize> {
        (!self.integers.is_empty()).then_some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.shape()).collect();
        let broadcast = Broadcast::new(&shapes, results[0].shape());
        let values: Vec<&[T]> = operands.iter().map(|operand| operand.values()).collect();
        let result = results[0].values_mut();
        evaluate::evaluate(&self.formula, &broadcast, &values, |start, steps| {
            let of_block = &steps[self.formula.result()];
            result[start..start + of_block.len()].copy_from_slice(of_block);
        });
        if self.is_integer {
            result.iter_mut().for_each(|x| *x = x.trunc());
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        // The expressions are valid; without them, the test of the number of cases fails.
        let _ = push_cases(cases);
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.shape()).collect();
        let values: Vec<&[f64]> = operands.iter().map(|operand| operand.values()).collect();
        let bound = match self.broadcast(&shapes) {
            Ok(broadcast) => error_bound::bound(&self.formula, &broadcast, &values),
            Err(_) => 0.0,
        };
        if self.is_integer {
            return bound;
        }
        narrow(dtype) + bound.max(tolerance(DType::F32, 1))
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let count = self.integers.len();
        let mut result = Vec::with_capacity(count);
        for (index, derivative) in self.formula.differentiate(count).into_iter().enumerate() {
            let Some(formula) = derivative.filter(|_| !self.integers[index] && !self.is_integer) else {
                result.push(None);
                continue;
            };
            let op = Self::of_formula(formula, count + 1);
            let op = Self {
                integers: self.integers.iter().copied().chain([false]).collect(),
                ..op
            };
            let values: Vec<ValueId> = node.inputs.iter().copied().chain([gradient]).collect();
            let (op, read) = op.without_unread_operands();
            let operands: Vec<ValueId> = read.into_iter().map(|index| values[index]).collect();
            let whole = builder.push(op, operands)?;
            let operand = node.inputs[index];
            let sum = sum_inner_axes(builder, whole, operand)?;
            result.push(Some(builder.sum_to_size(sum, operand)?));
        }
        Ok(result)
    }
}

/// Returns `gradient`, summed along the axes along which `value` repeats inside of an axis of its own.
fn sum_inner_axes(
    builder: &mut dyn GraphBuilder,
    gradient: ValueId,
    value: ValueId,
) -> Result<ValueId, OpError> {
    let (whole, shape) = (builder.shape(gradient), builder.shape(value));
    if whole == shape {
        return Ok(gradient);
    }
    let missing = whole.len() - shape.len();
    // Each image has its own sum.
    let at_2 = builder.shape_at(value, 2)?;
    let outer = at_2.iter().take_while(|&&extent| extent == 1).count();
    let repeats = |&axis: &usize| shape[axis] == 1 && whole[missing + axis] != 1;
    let axes: Vec<usize> = (outer..shape.len())
        .filter(repeats)
        .map(|axis| missing + axis)
        .collect();
    if axes.is_empty() {
        return Ok(gradient);
    }
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes,
        keep: true,
    };
    builder.push(sum, [gradient])
}

impl Elementwise {
    /// Returns the op of the operands that the expression reads, and their indices.
    pub(crate) fn without_unread_operands(&self) -> (Self, Vec<usize>) {
        let read: Vec<usize> = (0..self.integers.len())
            .filter(|&index| self.formula.reads(index as u32))
            .collect();
        let mut builder = Builder::default();
        let result = builder.renumbered(&self.formula, &read);
        let op = Self {
            formula: builder.finish(result),
            integers: read.iter().map(|&index| self.integers[index]).collect(),
            is_integer: self.is_integer,
        };
        (op, read)
    }
}

fn push_cases(cases: &mut Cases<Elementwise>) -> Result<(), PatternError> {
    let sum = Elementwise::ternary(|x, y, z| x * y - z)?;
    let groups =
        [ARITHMETIC, APPROXIMATE, ACTIVATIONS_OF_ONNX].map(|group| Ok((chosen(group)?, group.len())));
    let groups = groups.into_iter().collect::<Result<Vec<_>, _>>()?;
    let activations =
        ACTIVATIONS.map(|activation| Elementwise::new(1, Elementwise::of_activation(activation)));
    let activations = activations.into_iter().collect::<Result<Vec<_>, _>>()?;
    let rounded = Elementwise::unary(|x| x.round())?.into_integers();
    let place = Elementwise::binary(|x, y| Float::select(&x.equal(2.0), y, x * 0.5))?;
    let place = place.with_integer_operands(&[0]);
    cases.for_each_shape(|cases, [batch, tokens, channels], every_form| {
        let whole = [batch, tokens, channels];
        cases.push_in_arena(
            sum.clone(),
            vec![activation(&whole), activation(&whole), activation(&[channels])],
        );
        let broadcast: [[&[usize]; 3]; 4] = [
            [&whole, &[tokens, 1], &[1]],
            [&[batch, 1, channels], &[batch, tokens, 1], &[1, 1]],
            [&[tokens, 1], &[channels], &[batch, 1, 1]],
            [&[channels], &whole, &whole],
        ];
        for shapes in broadcast.iter().take(if every_form { 4 } else { 1 }) {
            cases.push(
                sum.clone(),
                shapes.iter().map(|shape| activation(shape)).collect(),
            );
        }
        for (op, functions) in &groups {
            let index = integers(&[channels], *functions);
            cases.push(op.clone(), vec![wide(&whole), activation(&whole), index]);
        }
        cases.push(rounded.clone(), vec![wide(&whole)]);
        cases.push(
            place.clone(),
            vec![integers(&[tokens, channels], 4), activation(&whole)],
        );
        for op in activations.iter().take(if every_form { 6 } else { 0 }) {
            cases.push(op.clone(), vec![wide(&whole)]);
        }
    });
    Ok(())
}

fn integers(shape: &[usize], below: usize) -> Operand {
    let below = i32::try_from(below).unwrap_or(i32::MAX);
    Operand {
        role: Role::Integers { below },
        ..activation(shape)
    }
}

/// Returns the op that chooses a function by its third operand, an integer.
fn chosen(functions: &[Function]) -> Result<Elementwise, PatternError> {
    let op = Elementwise::ternary(|x, y, index| {
        let functions = functions.iter().enumerate();
        functions.fold(Float::from(0.0), |rest, (number, function)| {
            let is_chosen = index.equal(number as f32);
            Float::select(&is_chosen, function(&x, &y), rest)
        })
    })?;
    Ok(op.with_integer_operands(&[2]))
}
