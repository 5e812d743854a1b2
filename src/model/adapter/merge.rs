//! Formulas of peft's `merge_and_unload`, in f64.
//!
//! With scaling s, a layer's weight W becomes W + s·B·A. With DoRA's magnitudes m it becomes m·(W + s·B·A) / ‖W +
//! s·B·A‖. The norm is computed per row (output channel), or per column in an embedding.

use rayon::prelude::*;

use crate::tensor::Tensor;

/// Range of rows of a tensor. The other dimensions are flattened to columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) start: usize,
    pub(super) count: usize,
}

/// Update of a weight: `scaling` times `left` `[rows, rank]` times `right` `[rank, columns]`.
#[derive(Debug)]
pub(super) struct Factors {
    left: Vec<f64>,
    right: Vec<f64>,
    rank: usize,
    pub(super) scaling: f64,
    magnitude: Option<Magnitude>,
}

/// Magnitudes of DoRA.
#[derive(Debug)]
enum Magnitude {
    OfRows(Vec<f32>),
    OfColumns(Vec<f32>),
}

impl Factors {
    /// Creates the factors from `a`, `[rank, …]`, and `b`, `[…, rank]`. In a convolution, sizes of 1 follow.
    ///
    /// In an embedding, the product of both is the transposed update.
    pub(super) fn new(
        a: &Tensor,
        b: &Tensor,
        embedding: bool,
        scaling: f64,
        magnitude: Option<Vec<f32>>,
    ) -> Self {
        let rank = a.shape().first().copied().unwrap_or(1);
        let wide = |tensor: &Tensor| {
            tensor
                .to_f32()
                .iter()
                .map(|&value| f64::from(value))
                .collect::<Vec<f64>>()
        };
        let (a, b) = (wide(a), wide(b));
        if embedding {
            return Self {
                left: transposed(&a, rank),
                right: transposed(&b, b.len() / rank.max(1)),
                rank,
                scaling,
                magnitude: magnitude.map(Magnitude::OfColumns),
            };
        }
        Self {
            left: b,
            right: a,
            rank,
            scaling,
            magnitude: magnitude.map(Magnitude::OfRows),
        }
    }
}

/// Transposes a matrix with `rows` rows.
fn transposed(values: &[f64], rows: usize) -> Vec<f64> {
    let columns = values.len() / rows.max(1);
    let column = |column: usize| values.iter().skip(column).step_by(columns.max(1)).copied();
    (0..columns).flat_map(column).collect()
}

/// Returns the values of `base` with `factors` merged into `rows`.
pub(super) fn merge(base: &Tensor, rows: &Rows, factors: &Factors) -> Vec<f32> {
    let mut values = base.to_f32().into_owned();
    let all = base.shape().first().copied().unwrap_or(1);
    let columns = values.len() / all.max(1);
    if columns == 0 {
        return values;
    }
    let part = &mut values[rows.start * columns..(rows.start + rows.count) * columns];
    let updated: Vec<f64> = part
        .par_chunks(columns)
        .zip(factors.left.par_chunks(factors.rank))
        .flat_map_iter(|(row, left)| update(row, left, factors, columns))
        .collect();
    let factor: Box<dyn Fn(usize) -> f64> = match &factors.magnitude {
        None => Box::new(|_| 1.0),
        Some(Magnitude::OfRows(magnitudes)) => {
            let norms: Vec<f64> = updated.chunks(columns).map(|row| norm(row.iter())).collect();
            Box::new(move |index| f64::from(magnitudes[index / columns]) / norms[index / columns])
        }
        Some(Magnitude::OfColumns(magnitudes)) => {
            let norm = |column| norm(updated.iter().skip(column).step_by(columns));
            let norms: Vec<f64> = (0..columns).map(norm).collect();
            Box::new(move |index| f64::from(magnitudes[index % columns]) / norms[index % columns])
        }
    };
    for (index, (value, updated)) in part.iter_mut().zip(&updated).enumerate() {
        *value = (factor(index) * updated) as f32;
    }
    values
}

/// Computes a row of W + s·B·A.
fn update(row: &[f32], left: &[f64], factors: &Factors, columns: usize) -> Vec<f64> {
    let mut values: Vec<f64> = row.iter().map(|&value| f64::from(value)).collect();
    for (left, right) in left.iter().zip(factors.right.chunks(columns)) {
        let scaled = factors.scaling * left;
        for (value, right) in values.iter_mut().zip(right) {
            *value += scaled * right;
        }
    }
    values
}

fn norm<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}
