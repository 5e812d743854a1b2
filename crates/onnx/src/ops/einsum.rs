//! Einstein summation of one or two tensors, as permutations, reductions and a product of matrices.

use hipvit_graph::op::BatchMatMul;
use hipvit_graph::op::reduce::ReduceKind;

use super::layout::{permute, reshape_to};
use super::reduce::reduce_axes;
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::Dim;
use crate::error::{Refusal, refuse};
use crate::shape::{dims, product, show};
use crate::value::Value;

/// An operand and the letters of its axes.
struct Labelled {
    value: Value,
    letters: Vec<char>,
}

impl Labelled {
    fn new(value: Value, letters: &str) -> Result<Self, Refusal> {
        let letters: Vec<char> = letters.chars().collect();
        let is_valid = letters.iter().all(char::is_ascii_alphabetic) && letters.len() == value.rank();
        if !is_valid {
            refuse!(
                "names the axes of {} by `{}`",
                show(&value.dims),
                letters.iter().collect::<String>()
            );
        }
        if (1..letters.len()).any(|index| letters[..index].contains(&letters[index])) {
            refuse!("takes a diagonal, which is not supported");
        }
        Ok(Self { value, letters })
    }

    fn dim(&self, letter: char) -> Option<Dim> {
        let axis = self.letters.iter().position(|&own| own == letter)?;
        Some(self.value.dims[axis])
    }

    /// Sums over the axes whose letters are not `kept`.
    fn reduced(self, builder: &mut Builder, kept: impl Fn(char) -> bool) -> Result<Self, Refusal> {
        let axes: Vec<usize> = (0..self.letters.len())
            .filter(|&axis| !kept(self.letters[axis]))
            .collect();
        if axes.is_empty() {
            return Ok(self);
        }
        let value = reduce_axes(builder, &self.value, ReduceKind::Sum, &axes, false)?;
        let letters = self.letters.into_iter().filter(|&letter| kept(letter)).collect();
        Ok(Self { value, letters })
    }

    /// Orders the axes by groups of letters, and makes each group one axis after the first group.
    fn grouped(&self, builder: &mut Builder, groups: [&[char]; 3]) -> Result<Value, Refusal> {
        let order: Vec<usize> = groups
            .concat()
            .iter()
            .filter_map(|letter| self.letters.iter().position(|own| own == letter))
            .collect();
        let value = permute(builder, &self.value, &order)?;
        let mut extents: Vec<Dim> = value.dims[..groups[0].len()].to_vec();
        for group in &groups[1..] {
            let of_group = group
                .iter()
                .filter_map(|&letter| self.dim(letter))
                .map(Into::into);
            extents.extend(dims(&[product(of_group)?])?);
        }
        reshape_to(builder, &value, &extents)
    }
}

pub(super) fn einsum(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let equation: String = context.string_or("equation", "").split_whitespace().collect();
    if equation.contains('.') {
        refuse!("has the equation `{equation}`, but an ellipsis is not supported");
    }
    let Some((left, right)) = equation.split_once("->") else {
        refuse!("has the equation `{equation}`, which does not name its result");
    };
    let result: Vec<char> = right.chars().collect();
    let mut operands = Vec::new();
    for (index, letters) in left.split(',').enumerate() {
        operands.push(Labelled::new(context.input(index)?, letters)?);
    }
    let is_known = |letter: &char| operands.iter().any(|operand| operand.letters.contains(letter));
    if !result.iter().all(is_known) || operands.len() != context.inputs.len() {
        refuse!(
            "has the equation `{equation}` for {} operands",
            context.inputs.len()
        );
    }
    let builder = &mut *context.builder;
    let mut operands = operands.into_iter();
    let summed = match (operands.next(), operands.next(), operands.next()) {
        (Some(x), None, _) => x.reduced(builder, |letter| result.contains(&letter))?,
        (Some(x), Some(y), None) => pair(builder, x, y, &result)?,
        _ => refuse!("has the equation `{equation}`, but at most 2 operands are supported"),
    };
    let order: Vec<usize> = result
        .iter()
        .filter_map(|letter| summed.letters.iter().position(|own| own == letter))
        .collect();
    permute(builder, &summed.value, &order).map(|value| vec![value])
}

/// Multiplies two operands, and sums over the letters that the result lacks.
fn pair(builder: &mut Builder, x: Labelled, y: Labelled, result: &[char]) -> Result<Labelled, Refusal> {
    let [of_x, of_y] = [x.letters.clone(), y.letters.clone()];
    let x = x.reduced(builder, |letter| {
        result.contains(&letter) || of_y.contains(&letter)
    })?;
    let y = y.reduced(builder, |letter| {
        result.contains(&letter) || of_x.contains(&letter)
    })?;
    for &letter in x.letters.iter().filter(|letter| y.letters.contains(letter)) {
        if x.dim(letter) != y.dim(letter) {
            refuse!(
                "has different extents for `{letter}` in {} and {}",
                show(&x.value.dims),
                show(&y.value.dims)
            );
        }
    }
    let letters = |of: &Labelled, holds: &dyn Fn(char) -> bool| -> Vec<char> {
        of.letters
            .iter()
            .copied()
            .filter(|&letter| holds(letter))
            .collect()
    };
    let is_shared = |letter: char| x.letters.contains(&letter) && y.letters.contains(&letter);
    let batch = letters(&x, &|letter| is_shared(letter) && result.contains(&letter));
    let summed = letters(&x, &|letter| is_shared(letter) && !result.contains(&letter));
    let rows = letters(&x, &|letter| !is_shared(letter));
    let columns = letters(&y, &|letter| !is_shared(letter));
    let a = x.grouped(builder, [&batch, &rows, &summed])?;
    let b = y.grouped(builder, [&batch, &columns, &summed])?;
    let op = BatchMatMul {
        transpose_b: true,
        ..BatchMatMul::default()
    };
    let multiplied = builder.apply(op, &[&a, &b])?;
    let of_x = batch.iter().chain(&rows).filter_map(|&letter| x.dim(letter));
    let of_y = columns.iter().filter_map(|&letter| y.dim(letter));
    let extents: Vec<Dim> = of_x.chain(of_y).collect();
    Ok(Labelled {
        value: reshape_to(builder, &multiplied, &extents)?,
        letters: [batch, rows, columns].concat(),
    })
}
