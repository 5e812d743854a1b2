//! Derivative of multi-head attention with a pattern.

use std::fmt;

use ndarray::Array2;
use rayon::prelude::*;

use super::attention_heads::{Heads, Place};
use super::operands::{count, expect};
use super::pattern_attention::PatternRows;
use super::pattern_attention::cases::of_derivative;
use super::{Definition, Locality, OpError, PatternAttention, Shape};
use crate::array::{Array, Real};
use crate::cases::Cases;
use crate::dtype::DType;
use crate::matmul::product;
use crate::pattern::{Captured, Derivative, Evaluator, Instruction, Row, Type};
use crate::tolerance::tolerance;

/// Derivative of a [`PatternAttention`]: `(its operands …, o, ln Σ e^s, dy) → the gradient of each operand but captured integers`.
///
/// Both results of the forward pass are operands, so that the softmax is not computed again: `P = e^(f(s) − ln Σ e^f(s))`. With
/// `dP = dy · Vᵀ`, the gradient of the changed scores is `P · (dP − Σ o · dy)`. The derivative of the score maps it to those of the scores
/// and of the captured tensors. Elements that several scores read get the sum, in the order of images, heads, queries and keys.
/// <https://arxiv.org/abs/2205.14135>
#[derive(Clone, Debug, PartialEq)]
pub struct PatternAttentionBackward(pub PatternAttention);

impl PatternAttentionBackward {
    /// Returns the number of operands of the forward pass.
    pub fn forward_operands(&self) -> usize {
        self.0.operands.count() + self.0.program.tensors().len()
    }

    /// Returns the operand of which result `index` is the gradient.
    pub fn operand_of(&self, index: usize) -> Option<usize> {
        self.differentiable().nth(index)
    }

    /// Returns the result that is the gradient of operand `index`. `None` for integers.
    pub fn result_of(&self, operand: usize) -> Option<usize> {
        self.differentiable().position(|other| other == operand)
    }

    fn differentiable(&self) -> impl Iterator<Item = usize> {
        let first = self.0.operands.count();
        let tensors = self.0.program.tensors().iter().enumerate();
        let floats = tensors.filter(|(_, tensor)| tensor.ty == Type::Float);
        (0..first).chain(floats.map(move |(index, _)| first + index))
    }
}

/// Gradients of a head: of Q, K, V and the changed scores.
struct HeadGradients<T> {
    qkv: [Array2<T>; 3],
    /// Set only if captured tensors have gradients.
    scores: Option<Gradients<T>>,
}

/// Scores before the pattern, and gradients of the scores after it.
struct Gradients<T> {
    before: Array2<T>,
    after: Array2<T>,
}

impl Definition for PatternAttentionBackward {
    const NAME: &'static str = "pattern_attention_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_attributes(f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let forward = self.forward_operands();
        let expected = forward + 3;
        if operands.len() != expected {
            return Err(OpError::Count {
                expected,
                found: operands.len(),
            });
        }
        let saving = PatternAttention {
            log_sum_exp: true,
            ..self.0.clone()
        };
        let results = saving.shapes(&operands[..forward])?;
        expect("o", operands[forward], &results[0])?;
        expect("log_sum_exp", operands[forward + 1], &results[1])?;
        expect("dy", operands[forward + 2], &results[0])?;
        Ok(self
            .differentiable()
            .map(|operand| operands[operand].to_vec())
            .collect())
    }

    /// Statistics are f32.
    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == self.forward_operands() + 1 {
            DType::F32
        } else {
            dtype
        }
    }

    /// Five GEMMs where the forward pass has two, its softmax, and the pattern with its derivative.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        let keys = self.0.plain().keys(operands) as u64;
        let dy = operands.last().map_or(0, |shape| count(shape));
        let scores = dy / self.0.head_dim as u64 * keys;
        5 * 2 * dy * keys + (8 + 2 * self.0.program.steps().len() as u64) * scores
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let spec = &self.0;
        let plain = spec.plain();
        let heads = Heads::new(&plain, &operands[..self.forward_operands()]);
        let dy = Place::new((0, 0), operands[operands.len() - 1].shape());
        let derivative = spec.program.differentiate();
        let indices = (0..heads.images() * spec.heads).into_par_iter();
        let gradients: Vec<HeadGradients<T>> = indices
            .map(|index| {
                let at = [index / spec.heads, index % spec.heads];
                self.of_head(&heads, derivative.as_ref(), &dy, operands, at)
            })
            .collect();
        // In the order of the images, so that sums over them are deterministic.
        for (index, of_head) in gradients.into_iter().enumerate() {
            let at = [index / spec.heads, index % spec.heads];
            for (place, gradient) in [heads.q, heads.k, heads.v].iter().zip(&of_head.qkv) {
                place.add(results[place.operand].values_mut(), at, gradient);
            }
            if let (Some(derivative), Some(scores)) = (&derivative, &of_head.scores) {
                self.add_captured(derivative, &heads, operands, at, scores, results);
            }
        }
    }

    fn cases(list: &mut Cases<Self>) {
        for (op, operands) in of_derivative(list.scale(), list.is_micro()) {
            let backward = Self(op);
            let results = (0..).take_while(|&index| backward.operand_of(index).is_some());
            for result in results {
                list.push_result(result, backward.clone(), operands.clone());
            }
        }
    }

    /// Sums over the keys and the channels of a head, of products of such sums. The pattern's arithmetic may multiply the errors.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let keys = operands[self.0.operands.keys()].shape()[1];
        let queries = operands[operands.len() - 1].values().len() / self.0.heads.max(1);
        let factor = 4.0 + 2.0 * f64::from(self.0.program.score().is_some());
        factor * tolerance(dtype, keys.max(queries) + 2 * self.0.head_dim)
    }
}

impl PatternAttentionBackward {
    fn of_head<T: Real>(
        &self,
        heads: &Heads<'_, T>,
        derivative: Option<&Derivative>,
        dy: &Place,
        operands: &[&Array<T>],
        at: [usize; 2],
    ) -> HeadGradients<T> {
        let (spec, [image, head]) = (&self.0, at);
        let forward = self.forward_operands();
        let extents = heads.extents();
        let in_result = [image, head, spec.head_dim];
        let d_o = dy.head(operands[forward + 2].values(), in_result);
        let o = dy.head(operands[forward].values(), in_result);
        let before = heads.scores(at);
        let mut p = before.clone();
        PatternRows::new(spec, &operands[..forward], extents).apply(at, &mut p);
        let first = (image * spec.heads + head) * extents.queries;
        let sums = &operands[forward + 1].values()[first..][..extents.queries];
        for (mut row, &sum) in p.rows_mut().into_iter().zip(sums) {
            let sees = sum > T::NEG_INFINITY;
            row.mapv_inplace(|score| if sees { (score - sum).exp() } else { T::ZERO });
        }
        let d_v = product(p.t(), d_o);
        let mut d_s = product(d_o, heads.of(&heads.v, at).t());
        for (query, (mut row, p)) in d_s.rows_mut().into_iter().zip(p.rows()).enumerate() {
            let delta: T = o
                .row(query)
                .iter()
                .zip(d_o.row(query))
                .map(|(&o, &d_o)| o * d_o)
                .sum();
            row.zip_mut_with(&p, |d_p, &p| {
                *d_p = if p == T::ZERO { T::ZERO } else { p * (*d_p - delta) }
            });
        }
        let scores = derivative
            .filter(|derivative| !derivative.loads.is_empty())
            .map(|_| Gradients {
                before: before.clone(),
                after: d_s.clone(),
            });
        if let Some(derivative) = derivative {
            let outputs: Vec<usize> = derivative.score.into_iter().collect();
            if let Some(mut evaluator) = self.evaluator(derivative, &outputs, heads, operands) {
                for (query, (mut row, before)) in d_s.rows_mut().into_iter().zip(before.rows()).enumerate() {
                    evaluator.evaluate(
                        Row {
                            batch: image,
                            head,
                            query,
                        },
                        &before.to_vec(),
                    );
                    for (key, gradient) in row
                        .iter_mut()
                        .enumerate()
                        .filter(|(_, gradient)| **gradient != T::ZERO)
                    {
                        *gradient *= derivative
                            .score
                            .map_or(T::ZERO, |step| evaluator.float(step, key));
                    }
                }
            }
        }
        let scale = T::from_f32(spec.scale);
        d_s.mapv_inplace(|gradient| scale * gradient);
        let d_q = product(d_s.view(), heads.of(&heads.k, at));
        let d_k = product(d_s.t(), heads.of(&heads.q, at));
        HeadGradients {
            qkv: [d_q, d_k, d_v],
            scores,
        }
    }

    fn evaluator<'a, T: Real>(
        &self,
        derivative: &'a Derivative,
        outputs: &[usize],
        heads: &Heads<'_, T>,
        operands: &[&'a Array<T>],
    ) -> Option<Evaluator<'a, T>> {
        let captured = self.0.captured(&operands[..self.forward_operands()]);
        let captured: Vec<Captured<'a, T>> = captured.iter().map(|&array| array.into()).collect();
        Evaluator::new(
            &derivative.program,
            outputs,
            &captured,
            &self.0.scalars,
            heads.extents(),
        )
        .ok()
    }

    /// Adds a head's gradients of the captured tensors.
    fn add_captured<T: Real>(
        &self,
        derivative: &Derivative,
        heads: &Heads<'_, T>,
        operands: &[&Array<T>],
        [batch, head]: [usize; 2],
        scores: &Gradients<T>,
        results: &mut [Array<T>],
    ) {
        let steps = derivative.loads.iter().flat_map(|&(load, factor)| [load, factor]);
        let Some(mut evaluator) = self.evaluator(derivative, &steps.collect::<Vec<_>>(), heads, operands)
        else {
            return;
        };
        for (query, (after, before)) in scores
            .after
            .rows()
            .into_iter()
            .zip(scores.before.rows())
            .enumerate()
        {
            evaluator.evaluate(Row { batch, head, query }, &before.to_vec());
            for &(load, factor) in &derivative.loads {
                let Instruction::Load { tensor, .. } = derivative.program.steps()[load].instruction else {
                    continue;
                };
                let Some(result) = self.result_of(self.0.operands.count() + tensor) else {
                    continue;
                };
                for (key, &gradient) in after
                    .iter()
                    .enumerate()
                    .filter(|(_, gradient)| **gradient != T::ZERO)
                {
                    if let Some(offset) = evaluator.offset(load, key) {
                        results[result].values_mut()[offset] += gradient * evaluator.float(factor, key);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::AttentionOperands;
    use crate::op::pattern_attention::cases::forms;

    fn noise(len: usize, seed: usize) -> Vec<f64> {
        let value = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f64 / 504.5 - 1.0;
        (0..len).map(value).collect()
    }

    fn dot(x: &Array, y: &Array) -> f64 {
        x.values().iter().zip(y.values()).map(|(x, y)| x * y).sum()
    }

    /// Compares the gradients with central differences along random directions.
    #[test]
    fn gradients_are_differences_for_every_form() {
        let (batch, heads, tokens, head_dim) = (2, 2, 6, 3);
        for form in forms([batch, heads, tokens]) {
            let name = form.pattern.name.clone();
            let spec = PatternAttention {
                log_sum_exp: true,
                ..PatternAttention::new(
                    (heads, head_dim),
                    0.7,
                    AttentionOperands::PackedQkv,
                    &form.pattern,
                )
                .unwrap()
            };
            let qkv = Array::new(
                [batch, tokens, 3 * heads * head_dim],
                noise(batch * tokens * 18, 1),
            )
            .unwrap();
            let captured = form.captured.iter().enumerate().map(|(index, operand)| {
                let len = operand.shape.iter().product();
                let values = noise(len, 5 + index).into_iter();
                let values = match operand.role {
                    crate::cases::Role::Integers { below } => values
                        .map(|value| (value.abs() * f64::from(below)).floor())
                        .collect(),
                    _ => values.collect(),
                };
                Array::new(operand.shape.clone(), values).unwrap()
            });
            let operands: Vec<Array> = std::iter::once(qkv).chain(captured).collect();
            let forward = |operands: &[Array]| spec.eval(&operands.iter().collect::<Vec<_>>()).unwrap();
            let results = forward(&operands);
            let dy = Array::new(results[0].shape().to_vec(), noise(results[0].values().len(), 3)).unwrap();
            let backward = PatternAttentionBackward(spec.clone());
            let all: Vec<&Array> = operands.iter().chain(&results).chain([&dy]).collect();
            let gradients = backward.eval(&all).unwrap();
            for (index, gradient) in gradients.iter().enumerate() {
                let operand = backward.operand_of(index).unwrap();
                let direction =
                    Array::new(gradient.shape().to_vec(), noise(gradient.values().len(), 11)).unwrap();
                let value = |step: f64| {
                    let mut moved = operands.clone();
                    let of_operand = moved[operand].values_mut().iter_mut();
                    of_operand
                        .zip(direction.values())
                        .for_each(|(x, d)| *x += step * d);
                    dot(&forward(&moved)[0], &dy)
                };
                let difference = (value(1e-5) - value(-1e-5)) / 2e-5;
                let found = dot(gradient, &direction);
                assert!(
                    (found - difference).abs() < 1e-7 * (1.0 + difference.abs()),
                    "{name:?}, operand {operand}: {found} and {difference}"
                );
            }
        }
    }
}
