//! Softmax of a row of scores.

use crate::array::Real;

/// Returns the softmax of scale · x over the visible keys of a row. All other keys get 0, also in a row without visible keys.
pub fn masked_softmax(row: &[f64], scale: f32, visible: impl Fn(usize) -> bool) -> Vec<f64> {
    let keys: Vec<usize> = (0..row.len()).filter(|&key| visible(key)).collect();
    let mut weights: Vec<f64> = keys.iter().map(|&key| f64::from(scale) * row[key]).collect();
    softmax(&mut weights);
    let mut all = vec![0.0; row.len()];
    for (key, weight) in keys.into_iter().zip(weights) {
        all[key] = weight;
    }
    all
}

/// Replaces the scores by `exp(score − max) / Σ exp(score − max)`. A score of −∞ becomes 0.
pub(crate) fn softmax<T: Real>(scores: &mut [T]) {
    let row_max = scores.iter().copied().fold(T::NEG_INFINITY, T::max);
    scores
        .iter_mut()
        .for_each(|score| *score = (*score - row_max).exp());
    let row_sum: T = scores.iter().copied().sum();
    scores.iter_mut().for_each(|score| *score /= row_sum);
}

/// Returns `ln Σ e^s`.
pub(crate) fn log_sum_exp<T: Real>(scores: impl Iterator<Item = T> + Clone) -> T {
    let row_max = scores.clone().fold(T::NEG_INFINITY, T::max);
    if row_max == T::NEG_INFINITY {
        return row_max;
    }
    row_max + scores.map(|score| (score - row_max).exp()).sum::<T>().ln()
}
