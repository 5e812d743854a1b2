//! Softmax of a row of scores.

/// Replaces the scores by `exp(score − max) / Σ exp(score − max)`. An empty row stays empty; a score of −∞ becomes 0.
pub(crate) fn softmax(scores: &mut [f64]) {
    let row_max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores
        .iter_mut()
        .for_each(|score| *score = (*score - row_max).exp());
    let row_sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= row_sum);
}
