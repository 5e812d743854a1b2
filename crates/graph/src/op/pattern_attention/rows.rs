//! Score and mask of all rows of a head.

use ndarray::Array2;

use super::attributes::PatternAttention;
use crate::array::{Array, Real};
use crate::pattern::{Captured, Evaluator, Extents, Row};

/// Evaluates a pattern. Each thread has a clone.
#[derive(Clone)]
pub(in crate::op) struct PatternRows<'a, T> {
    spec: &'a PatternAttention,
    /// `None` if the operands were not checked.
    evaluator: Option<Evaluator<'a, T>>,
}

impl<'a, T: Real> PatternRows<'a, T> {
    pub(in crate::op) fn new(
        spec: &'a PatternAttention,
        operands: &[&'a Array<T>],
        extents: Extents,
    ) -> Self {
        let program = &spec.program;
        let outputs: Vec<usize> = program.score().into_iter().chain(program.mask()).collect();
        let captured: Vec<Captured<'a, T>> = spec
            .captured(operands)
            .iter()
            .map(|&array| array.into())
            .collect();
        Self {
            spec,
            evaluator: Evaluator::new(program, &outputs, &captured, &spec.scalars, extents).ok(),
        }
    }

    /// Applies score and mask to a head's scores, `[queries, keys]`.
    pub(in crate::op) fn apply(mut self, [batch, head]: [usize; 2], scores: &mut Array2<T>) {
        let Some(evaluator) = &mut self.evaluator else {
            return;
        };
        for (query, mut scores) in scores.rows_mut().into_iter().enumerate() {
            let before = scores.to_vec();
            evaluator.evaluate(Row { batch, head, query }, &before);
            for (key, score) in scores.iter_mut().enumerate() {
                if let Some(step) = self.spec.program.score() {
                    *score = evaluator.float(step, key);
                }
                if self
                    .spec
                    .program
                    .mask()
                    .is_some_and(|step| !evaluator.is_true(step, key))
                {
                    *score = T::NEG_INFINITY;
                }
            }
        }
    }
}
