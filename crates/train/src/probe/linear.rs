//! Multinomial logistic regression on standardised features, with an L2 penalty on the weights.
//!
//! Features and matrix products are in f32. Parameters, sums over images and the steps of L-BFGS are in f64. The images are divided into a
//! fixed number of parts, so the result does not depend on the number of threads.

use hipvit::ndarray::linalg::general_mat_mul;
use hipvit::ndarray::{Array1, Array2, ArrayView2, ArrayViewMut1, Axis, s};
use hipvit::{Error, Result};
use rayon::prelude::*;
use serde::Serialize;

use super::lbfgs::{Limits, Minimum, minimize};
use super::{Accuracy, Features, Probe, ProbeError, Ranks, check_positive, rank};
use crate::fit::divide;

/// Share of the training images of each class on which strengths are compared.
const HELD_OUT: f64 = 0.2;
/// Number of images per matrix product.
const CHUNK: usize = 256;
/// Number of sums of gradients that are computed in parallel.
const PARTS: usize = 32;
/// Standard deviation of a channel, relative to its mean, below which the channel is constant up to rounding.
const MIN_DEVIATION: f64 = 1e-6;
const LIMITS: Limits = Limits {
    gradient: 1e-5,
    iterations: 1000,
};

/// Options of a linear probe.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearOptions {
    /// Strengths `λ` of the penalty: the objective is `mean cross-entropy + λ/2 · ‖W‖²`. In scikit-learn, `C` is `1 / (λ · images)`.
    pub l2: Vec<f64>,
    /// Seed that determines the training images on which strengths are compared.
    pub seed: u64,
}

/// Powers of ten from 1 to 1e-6.
impl Default for LinearOptions {
    fn default() -> Self {
        Self {
            l2: vec![1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6],
            seed: 0,
        }
    }
}

/// Accuracy of a linear classifier, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LinearResult {
    /// Strength of the penalty.
    pub l2: f64,
    /// Accuracy on the validation images.
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// Number of L-BFGS steps of the last fit.
    pub iterations: usize,
    /// True if the last fit ended at the minimum, within a gradient of 1e-5.
    pub converged: bool,
    /// Strengths that were tried, strongest first.
    pub trials: Vec<Trial>,
}

/// A strength that was tried on a part of the training images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Trial {
    /// Strength of the penalty.
    pub l2: f64,
    /// Accuracy on the other part.
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// True if the fit ended at its minimum.
    pub converged: bool,
}

impl Probe {
    /// Trains a linear classifier on the training images, and classifies the validation images.
    ///
    /// It is multinomial logistic regression on standardised features, with an L2 penalty on the weights. Each strength of the penalty is tried
    /// on a part of the training images. The most accurate one on the other part is selected, and the classifier is trained again on all of
    /// them. `on_fit` is called after each of these fits. A single strength is not tried.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if there is no strength or one is not positive, or if there are too few images to select one.
    pub fn linear(
        &self,
        options: &LinearOptions,
        on_fit: &mut dyn FnMut(),
    ) -> Result<LinearResult, ProbeError> {
        evaluate(self, options, on_fit)
    }
}

/// Selects a strength, trains on all training images, and classifies the validation images.
fn evaluate(
    probe: &Probe,
    options: &LinearOptions,
    on_fit: &mut dyn FnMut(),
) -> Result<LinearResult, ProbeError> {
    let Probe { train, validation } = probe;
    let strengths = sorted(&options.l2)?;
    let [fitted, held_out] = division(train, strengths.len(), options.seed)?;
    let scaling = Scaling::of(&train.values);
    // The images to fit on come first, so that each part is a view.
    let order = [&fitted[..], &held_out].concat();
    let values = scaling.apply(train.values.select(Axis(0), &order));
    let labels: Vec<usize> = order.iter().map(|&index| train.labels[index]).collect();
    let all = Images {
        values: values.view(),
        labels: &labels,
    };
    let (fitted, held_out) = all.split(fitted.len());
    let (mut trials, mut best) = (Vec::new(), None);
    let mut classifier = Classifier::new(train.classes, train.channels());
    let tried = if strengths.len() > 1 { &strengths[..] } else { &[] };
    for &l2 in tried {
        // Start at the minimum of the next stronger penalty, which is near.
        let minimum = classifier.fit(&fitted, l2);
        let trial = Trial {
            l2,
            accuracy: classifier.accuracy(&held_out),
            converged: minimum.converged,
        };
        trials.push(trial);
        // If several strengths are equally accurate, the strongest is selected.
        let is_better = |(best, _): &(Trial, Classifier)| trial.accuracy.accuracy > best.accuracy.accuracy;
        if best.as_ref().is_none_or(is_better) {
            best = Some((trial, classifier.clone()));
        }
        on_fit();
    }
    let (l2, mut classifier) = best.map_or((strengths[0], classifier), |(trial, best)| (trial.l2, best));
    let minimum = classifier.fit(&all, l2);
    on_fit();
    let values = scaling.apply(validation.values.clone());
    let images = Images {
        values: values.view(),
        labels: &validation.labels,
    };
    Ok(LinearResult {
        l2,
        accuracy: classifier.accuracy(&images),
        iterations: minimum.iterations,
        converged: minimum.converged,
        trials,
    })
}

/// Returns the strengths, strongest first, each once.
fn sorted(strengths: &[f64]) -> Result<Vec<f64>, ProbeError> {
    for &l2 in strengths {
        check_positive("l2", l2)?;
    }
    if strengths.is_empty() {
        return Err(Error::argument("l2", "has no strength").into());
    }
    let mut sorted = strengths.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    sorted.dedup();
    Ok(sorted)
}

/// Returns the indices of the images to fit on, and of those to compare strengths on. The latter are empty for a single strength.
fn division(train: &Features, strengths: usize, seed: u64) -> Result<[Vec<usize>; 2]> {
    let share = if strengths > 1 { HELD_OUT } else { 0.0 };
    let [fitted, held_out] = divide(&train.labels, train.classes, share, seed);
    if strengths > 1 && held_out.is_empty() {
        let reason = "cannot be selected, because no class has three training images. Give a single strength, such as 0.01";
        return Err(Error::argument("l2", reason));
    }
    Ok([fitted, held_out])
}

/// Standardised features, and the class of each image.
#[derive(Clone, Copy)]
struct Images<'a> {
    values: ArrayView2<'a, f32>,
    labels: &'a [usize],
}

impl<'a> Images<'a> {
    fn split(self, count: usize) -> (Self, Self) {
        let (first, second) = self.values.split_at(Axis(0), count);
        let (first_labels, second_labels) = self.labels.split_at(count);
        let images = |values, labels| Self { values, labels };
        (images(first, first_labels), images(second, second_labels))
    }

    /// Divides the images into sets of at most `size`.
    fn chunks(self, size: usize) -> impl Iterator<Item = Self> {
        let Self { values, labels } = self;
        (0..labels.len()).step_by(size).map(move |start| {
            let end = (start + size).min(labels.len());
            Self {
                values: values.slice_move(s![start..end, ..]),
                labels: &labels[start..end],
            }
        })
    }
}

/// Scales each channel to a mean of 0 and a standard deviation of 1.
struct Scaling {
    means: Array1<f32>,
    deviations: Array1<f32>,
}

impl Scaling {
    /// Measures the channels of the training images. A constant channel keeps its scale.
    fn of(values: &Array2<f32>) -> Self {
        let (mut means, mut squares) = (vec![0.0; values.ncols()], vec![0.0; values.ncols()]);
        let images = values.nrows() as f64;
        for row in values.rows() {
            let sums = means.iter_mut().zip(row);
            sums.for_each(|(sum, &value)| *sum += f64::from(value) / images);
        }
        for row in values.rows() {
            for ((sum, mean), &value) in squares.iter_mut().zip(&means).zip(row) {
                *sum += (f64::from(value) - mean).powi(2) / images;
            }
        }
        let deviation = |(&mean, &square): (&f64, &f64)| {
            let deviation = f64::sqrt(square);
            if deviation > MIN_DEVIATION * f64::abs(mean) {
                deviation as f32
            } else {
                1.0
            }
        };
        Self {
            deviations: means.iter().zip(&squares).map(deviation).collect(),
            means: means.iter().map(|&mean| mean as f32).collect(),
        }
    }

    fn apply(&self, mut values: Array2<f32>) -> Array2<f32> {
        values -= &self.means;
        values /= &self.deviations;
        values
    }
}

/// A linear classifier. The parameters are the weights `[classes, channels]`, then the biases.
#[derive(Clone, Debug)]
struct Classifier {
    parameters: Vec<f64>,
    classes: usize,
    channels: usize,
}

impl Classifier {
    fn new(classes: usize, channels: usize) -> Self {
        Self {
            parameters: vec![0.0; classes * (channels + 1)],
            classes,
            channels,
        }
    }

    /// Minimises the objective, starting at the present parameters.
    fn fit(&mut self, images: &Images<'_>, l2: f64) -> Minimum {
        let start = std::mem::take(&mut self.parameters);
        let minimum = minimize(start, LIMITS, &mut |parameters, gradient| {
            self.objective(images, l2, parameters, gradient)
        });
        self.parameters.clone_from(&minimum.position);
        minimum
    }

    /// Returns the mean cross-entropy with the penalty. Writes its gradient.
    fn objective(&self, images: &Images<'_>, l2: f64, parameters: &[f64], gradient: &mut [f64]) -> f64 {
        let layer = self.layer(parameters);
        let size = images.labels.len().div_ceil(PARTS).max(CHUNK);
        let parts: Vec<Images<'_>> = images.chunks(size).collect();
        let parts: Vec<Sums> = parts
            .into_par_iter()
            .map(|images| Sums::of(&layer, images))
            .collect();
        gradient.fill(0.0);
        for part in &parts {
            let weights = part.weights.iter().map(|&weight| f64::from(weight));
            let part = weights.chain(part.biases.iter().copied());
            gradient.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        let count = images.labels.len() as f64;
        gradient.iter_mut().for_each(|sum| *sum /= count);
        let weights = &parameters[..self.classes * self.channels];
        for (gradient, weight) in gradient.iter_mut().zip(weights) {
            *gradient += l2 * weight;
        }
        let loss: f64 = parts.iter().map(|part| part.loss).sum();
        let penalty: f64 = weights.iter().map(|weight| weight * weight).sum();
        loss / count + 0.5 * l2 * penalty
    }

    /// Returns the share of images that are classified correctly.
    fn accuracy(&self, images: &Images<'_>) -> Accuracy {
        let layer = self.layer(&self.parameters);
        let chunks: Vec<Images<'_>> = images.chunks(CHUNK).collect();
        let count = |images: Images<'_>| {
            let mut ranks = Ranks::default();
            for (scores, &label) in layer.scores(images.values).rows().into_iter().zip(images.labels) {
                ranks.add(rank(&scores.to_vec(), label));
            }
            ranks
        };
        let ranks: Vec<Ranks> = chunks.into_par_iter().map(count).collect();
        ranks.into_iter().sum::<Ranks>().accuracy(self.classes)
    }

    /// Rounds parameters to f32.
    fn layer(&self, parameters: &[f64]) -> Layer {
        let (weights, biases) = parameters.split_at(self.classes * self.channels);
        Layer {
            weights: Array2::from_shape_fn((self.classes, self.channels), |(class, channel)| {
                weights[class * self.channels + channel] as f32
            }),
            biases: biases.iter().map(|&bias| bias as f32).collect(),
        }
    }
}

/// A linear layer in f32.
struct Layer {
    weights: Array2<f32>,
    biases: Array1<f32>,
}

impl Layer {
    /// Returns the score of each class, a row per image.
    fn scores(&self, values: ArrayView2<'_, f32>) -> Array2<f32> {
        values.dot(&self.weights.t()) + &self.biases
    }
}

/// Sums over images: the cross-entropy, and its gradients.
struct Sums {
    loss: f64,
    weights: Array2<f32>,
    biases: Vec<f64>,
}

impl Sums {
    fn of(layer: &Layer, images: Images<'_>) -> Self {
        let mut sums = Self {
            loss: 0.0,
            weights: Array2::zeros(layer.weights.raw_dim()),
            biases: vec![0.0; layer.biases.len()],
        };
        for chunk in images.chunks(CHUNK) {
            let mut scores = layer.scores(chunk.values);
            for (mut row, &label) in scores.rows_mut().into_iter().zip(chunk.labels) {
                sums.loss += differentiate(row.view_mut(), label);
                for (sum, &gradient) in sums.biases.iter_mut().zip(&row) {
                    *sum += f64::from(gradient);
                }
            }
            general_mat_mul(1.0, &scores.t(), &chunk.values, 1.0, &mut sums.weights);
        }
        sums
    }
}

/// Returns the cross-entropy of an image. Replaces its scores with the gradient: the probabilities, less 1 at the label.
fn differentiate(mut scores: ArrayViewMut1<'_, f32>, label: usize) -> f64 {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let score = f64::from(scores[label] - largest);
    scores.mapv_inplace(|score| (score - largest).exp());
    // In f64, so that a loss and a gradient near 0 keep their precision.
    let sum: f64 = scores.iter().map(|&power| f64::from(power)).sum();
    let at_label = f64::from(scores[label]) / sum - 1.0;
    scores.mapv_inplace(|power| (f64::from(power) / sum) as f32);
    scores[label] = at_label as f32;
    sum.ln() - score
}

#[cfg(test)]
mod tests {
    use rayon::ThreadPoolBuilder;

    use super::*;

    const CLASSES: usize = 3;
    const CHANNELS: usize = 5;

    /// Returns images of three classes that overlap. There are several parts and chunks. The last channel is constant.
    fn features(images: usize) -> Features {
        let residues = |i: usize| [0, 1, 2, 3].map(|j| (i * (j + 3) * 7 + i * i * (j + 1)) % 31);
        let values = Array2::from_shape_fn((images, CHANNELS), |(i, j)| {
            residues(i).get(j).map_or(2.5, |&residue| residue as f32 / 8.0)
        });
        let label = |i| {
            let [a, b, c, _] = residues(i);
            match 2 * a + b + 3 * (i * i * 5 % 11) {
                sum if sum < 35 + c => 0,
                sum if sum < 60 + c => 1,
                _ => 2,
            }
        };
        Features::new(values, (0..images).map(label).collect(), CLASSES).unwrap()
    }

    type Solution = (f64, f64, [[f64; CHANNELS]; CLASSES], [f64; CLASSES]);

    /// Strength, objective, weights and biases of `LogisticRegression(C=1/(l2*600), tol=1e-12)` of scikit-learn 1.9.1, on the output of
    /// `StandardScaler`.
    const SCIKIT_LEARN: [Solution; 2] = [
        (
            0.1,
            0.741_688_040_5,
            [
                [-0.797_713, -0.494_293, 0.570_186, -0.125_034, 0.0],
                [0.034_190, 0.083_454, -0.123_983, -0.094_960, 0.0],
                [0.763_523, 0.410_840, -0.446_204, 0.219_994, 0.0],
            ],
            [0.155_443, 0.408_927, -0.564_369],
        ),
        (
            0.001,
            0.443_036_643_6,
            [
                [-2.904_102, -1.879_964, 1.696_661, 0.005_051, 0.0],
                [0.091_352, 0.082_082, -0.092_286, 0.039_629, 0.0],
                [2.812_751, 1.797_882, -1.604_376, -0.044_680, 0.0],
            ],
            [0.142_020, 1.427_540, -1.569_560],
        ),
    ];

    #[test]
    fn fits_are_those_of_scikit_learn() {
        let features = features(600);
        let scaling = Scaling::of(&features.values);
        let values = scaling.apply(features.values);
        let images = Images {
            values: values.view(),
            labels: &features.labels,
        };
        for (l2, expected_loss, weights, biases) in SCIKIT_LEARN {
            let mut classifier = Classifier::new(CLASSES, CHANNELS);
            let minimum = classifier.fit(&images, l2);
            assert!(minimum.converged, "{minimum:?}");
            let mut gradient = vec![0.0; CLASSES * (CHANNELS + 1)];
            let loss = classifier.objective(&images, l2, &classifier.parameters, &mut gradient);
            assert!((loss - expected_loss).abs() < 1e-6, "{loss} {expected_loss}");
            let expected = weights.iter().flatten().chain(&biases);
            for (&found, &expected) in classifier.parameters.iter().zip(expected) {
                // The gradient is within 1e-5, and the curvature at least 1e-2.
                assert!((found - expected).abs() < 1e-3, "{found} {expected}");
            }
        }
    }

    #[test]
    fn the_most_accurate_strength_is_selected_whatever_the_number_of_threads() {
        let probe = Probe::new(features(600), features(300)).unwrap();
        let options = LinearOptions {
            l2: vec![1e-4, 100.0, 1e-3, 1e-4],
            seed: 3,
        };
        let [one, three] = [1, 3].map(|threads| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut fits = 0;
            let result = pool.install(|| probe.linear(&options, &mut || fits += 1));
            (result.unwrap(), fits)
        });
        assert_eq!(one, three);
        let (result, fits) = one;
        assert_eq!(fits, 4);
        let tried = |trial: &Trial| (trial.l2, trial.accuracy.accuracy);
        let trials: Vec<(f64, f64)> = result.trials.iter().map(tried).collect();
        let [(100.0, strongest), (1e-3, middle), (1e-4, weakest)] = trials[..] else {
            panic!("{trials:?}");
        };
        assert!(strongest < middle, "{trials:?}");
        assert_eq!(result.l2, if weakest > middle { 1e-4 } else { 1e-3 });
        assert!(result.converged && result.accuracy.accuracy > 0.7, "{result:?}");
    }

    #[test]
    fn a_single_strength_needs_no_images_to_select_it() {
        let probe = Probe::new(features(4), features(4)).unwrap();
        let with = |l2: &[f64]| {
            let (l2, seed) = (l2.to_vec(), 0);
            probe.linear(&LinearOptions { l2, seed }, &mut || {})
        };
        assert_eq!(with(&[0.1]).unwrap().trials, []);
        for (strengths, reason) in [
            (&[0.1, 0.2][..], "no class has three training images"),
            (&[0.0], "l2: is 0, expected a positive number"),
            (&[], "has no strength"),
        ] {
            let error = with(strengths).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_certain_prediction_keeps_the_precision_of_its_loss() {
        let mut scores = Array1::from(vec![20.0, 0.0]);
        let loss = differentiate(scores.view_mut(), 0);
        let expected = (-20f64).exp();
        assert!((loss / expected - 1.0).abs() < 1e-6, "{loss}");
        assert!((f64::from(scores[0]) / -expected - 1.0).abs() < 1e-6, "{scores}");
        assert!((f64::from(scores[1]) / expected - 1.0).abs() < 1e-6, "{scores}");
    }
}
