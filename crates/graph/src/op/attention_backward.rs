//! Derivative of multi-head attention.

mod attributes;
mod cases;

use std::fmt;

use ndarray::Array2;
use rayon::prelude::*;

pub use self::attributes::AttentionBackward;
use super::attention_heads::{Heads, Place, softmax_rows};
use super::operands::{count, expect};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::Cases;
use crate::dtype::DType;
use crate::matmul::product;
use crate::tolerance::tolerance;

/// Gradients of a head: of Q, K, V and the scores.
struct HeadGradients<T> {
    qkv: [Array2<T>; 3],
    /// Set only if there is a bias.
    scores: Option<Array2<T>>,
}

impl Definition for AttentionBackward {
    const NAME: &'static str = "attention_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_attributes(f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let forward = self.forward_operands();
        let expected = forward + 1 + if self.0.statistics { 2 } else { 0 };
        if operands.len() != expected {
            return Err(OpError::Count {
                expected,
                found: operands.len(),
            });
        }
        let results = self.0.shapes(&operands[..forward])?;
        if let Some(saved) = self.saved_operand() {
            expect("o", operands[saved], &results[0])?;
            expect("statistics", operands[saved + 1], &results[1])?;
        }
        expect("dy", operands[expected - 1], &results[0])?;
        Ok(operands[..self.gradients()]
            .iter()
            .map(|shape| shape.to_vec())
            .collect())
    }

    /// Statistics are f32.
    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match self.saved_operand() {
            Some(saved) if index == saved + 1 => DType::F32,
            _ => dtype,
        }
    }

    /// Five GEMMs where the forward pass has two, and its softmax.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        let keys = self.0.keys(operands) as u64;
        let dy = operands.last().map_or(0, |shape| count(shape));
        5 * 2 * dy * keys + 8 * dy / self.0.head_dim as u64 * keys
    }

    fn locality(&self, _index: usize) -> Locality {
        // The gradients of a bias and of shared queries are sums over the images.
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let spec = &self.0;
        let heads = Heads::new(spec, &operands[..self.forward_operands()]);
        let result = Place::new((0, 0), operands[operands.len() - 1].shape());
        let indices = (0..heads.images() * spec.heads).into_par_iter();
        let gradients: Vec<HeadGradients<T>> = indices
            .map(|index| {
                self.of_head(
                    &heads,
                    &result,
                    operands,
                    [index / spec.heads, index % spec.heads],
                )
            })
            .collect();
        // In the order of the images, so that sums over them are deterministic.
        for (index, of_head) in gradients.into_iter().enumerate() {
            let at = [index / spec.heads, index % spec.heads];
            for (place, gradient) in [heads.q, heads.k, heads.v].iter().zip(&of_head.qkv) {
                place.add(results[place.operand].values_mut(), at, gradient);
            }
            if let (Some(bias), Some(scores)) = (spec.bias_operand(), of_head.scores) {
                let sum = results[bias].values_mut()[at[1] * scores.len()..].iter_mut();
                sum.zip(scores).for_each(|(sum, gradient)| *sum += gradient);
            }
        }
    }

    fn cases(list: &mut Cases<Self>) {
        cases::add(list);
    }

    /// Sums over the keys and the channels of a head, of products of such sums. A narrower dtype rounds P, dS, the result of the forward pass
    /// and the gradient once each.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let keys = operands[self.0.operands.keys()].shape()[1];
        let queries = operands[operands.len() - 1].values().len() / self.0.heads.max(1);
        let terms = keys.max(queries) + 2 * self.0.head_dim;
        3.0 * tolerance(DType::F32, terms) + tolerance(dtype, terms)
    }
}

impl AttentionBackward {
    fn of_head<T: Real>(
        &self,
        heads: &Heads<'_, T>,
        result: &Place,
        operands: &[&Array<T>],
        at: [usize; 2],
    ) -> HeadGradients<T> {
        let (spec, [image, head]) = (&self.0, at);
        let in_result = [image, head, spec.head_dim];
        let d_o = result.head(operands[operands.len() - 1].values(), in_result);
        let mut p = heads.scores(at);
        let mut deltas = None;
        match self.saved_operand() {
            Some(saved) => {
                let first = (image * spec.heads + head) * heads.q.tokens;
                let statistics = operands[saved + 1].values()[3 * first..].chunks_exact(3);
                for (mut row, statistics) in p.rows_mut().into_iter().zip(statistics) {
                    let sees = statistics[0] > T::NEG_INFINITY;
                    let weight = |score: T| {
                        if sees {
                            (score - statistics[0]).exp()
                        } else {
                            T::ZERO
                        }
                    };
                    row.mapv_inplace(weight);
                }
                let o = result.head(operands[saved].values(), in_result);
                deltas = Some((&o * &d_o).sum_axis(ndarray::Axis(1)));
            }
            None => softmax_rows(p.view_mut()),
        }
        let d_v = product(p.t(), d_o);
        let mut d_s = product(d_o, heads.of(&heads.v, at).t());
        for (query, (mut row, p)) in d_s.rows_mut().into_iter().zip(p.rows()).enumerate() {
            let delta = match &deltas {
                Some(deltas) => deltas[query],
                None => row.iter().zip(p).map(|(&d_p, &p)| d_p * p).sum(),
            };
            row.zip_mut_with(&p, |d_p, &p| *d_p = p * (*d_p - delta));
        }
        let scores = spec.bias.then(|| d_s.clone());
        let scale = T::from_f32(spec.scale);
        d_s.mapv_inplace(|gradient| scale * gradient);
        let d_q = product(d_s.view(), heads.of(&heads.k, at));
        let d_k = product(d_s.t(), heads.of(&heads.q, at));
        HeadGradients {
            qkv: [d_q, d_k, d_v],
            scores,
        }
    }
}
