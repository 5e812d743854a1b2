//! What a model says of its images: logits, probabilities, the best labels, embeddings.

use ndarray::{Array2, ArrayView1};
use serde::Serialize;

use crate::labels::Labels;

/// The results for some images, a row an image, in the order in which the images went in.
#[derive(Clone, Debug)]
pub struct Outputs {
    pub(crate) logits: Option<Array2<f32>>,
    pub(crate) embeddings: Array2<f32>,
}

impl Outputs {
    /// The number of images.
    pub fn len(&self) -> usize {
        self.embeddings.nrows()
    }

    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `[images, classes]`, before softmax or sigmoid; `None` if the model has no head.
    pub fn logits(&self) -> Option<&Array2<f32>> {
        self.logits.as_ref()
    }

    /// `[images, D]`: what the head sees, or the model's own result if it has no head.
    pub fn embeddings(&self) -> &Array2<f32> {
        &self.embeddings
    }

    /// Appends `other`'s rows.
    pub(crate) fn append(&mut self, other: &Self) -> Result<(), ndarray::ShapeError> {
        self.embeddings
            .append(ndarray::Axis(0), other.embeddings.view())?;
        match (&mut self.logits, &other.logits) {
            (Some(all), Some(more)) => all.append(ndarray::Axis(0), more.view()),
            _ => Ok(()),
        }
    }
}

/// How a model's logits become probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scores {
    /// One class is right: the probabilities sum to 1.
    Softmax,
    /// Each class is right or not by itself; the only choice for one logit.
    Sigmoid,
}

impl Scores {
    /// The probabilities of one image's logits, computed in f64 with the maximum subtracted.
    pub fn probabilities(self, logits: ArrayView1<'_, f32>) -> Vec<f32> {
        match self {
            Self::Sigmoid => logits
                .iter()
                .map(|&x| (1.0 / (1.0 + (-f64::from(x)).exp())) as f32)
                .collect(),
            Self::Softmax => {
                let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let exp: Vec<f64> = logits.iter().map(|&x| f64::from(x - max).exp()).collect();
                let sum: f64 = exp.iter().sum();
                exp.into_iter().map(|e| (e / sum) as f32).collect()
            }
        }
    }

    /// The `k` likeliest classes of one image, best first; ties go to the lower index.
    pub fn top(self, logits: ArrayView1<'_, f32>, k: usize, labels: &Labels) -> Vec<Prediction> {
        let probabilities = self.probabilities(logits);
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        order.truncate(k);
        order
            .into_iter()
            .map(|index| Prediction {
                index,
                label: labels.get(index).to_string(),
                logit: logits[index],
                probability: probabilities[index],
            })
            .collect()
    }
}

/// One class and how likely it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The class's index.
    pub index: usize,
    /// The class's name.
    pub label: String,
    /// The score before softmax or sigmoid.
    pub logit: f32,
    /// The score after it.
    pub probability: f32,
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn softmax_survives_large_logits_and_sums_to_one() {
        let p = Scores::Softmax.probabilities(array![1000.0, 999.0, -1000.0].view());
        let e = std::f64::consts::E;
        assert!((f64::from(p[0]) - e / (e + 1.0)).abs() < 1e-7);
        assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn one_logit_gives_a_sigmoid() {
        for (x, expected) in [(0.0, 0.5), (2.0, 0.880_797), (-100.0, 0.0), (100.0, 1.0)] {
            let p = Scores::Sigmoid.probabilities(array![x].view());
            assert!((p[0] - expected).abs() < 1e-6, "{x}: {}", p[0]);
        }
    }
}
