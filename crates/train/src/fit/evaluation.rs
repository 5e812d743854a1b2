//! Evaluation of a model on the validation images: accuracy, confusions, and the images with the largest losses.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use hipvit::Outputs;
use hipvit::error::{Error, Result};
use hipvit::model::replace_file;
use hipvit::ops::{Definition, Loss, LossKind};
use hipvit::reference::Array;
use hipvit_data::{Batch, Dataset};
use hipvit_files::regular_file;
use serde::{Deserialize, Serialize};

use super::figures::Figures;
use super::reading::Reading;
use super::recall::Recall;

/// Number of images with the largest losses that an evaluation lists.
const WORST_IMAGES: usize = 24;

/// Result of an evaluation. Labels and predictions are indices of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evaluation {
    /// Number of steps before the evaluation.
    pub step: u64,
    /// Number of images.
    pub images: u64,
    /// Number of images that were classified correctly.
    pub correct: u64,
    /// Mean of the finite losses, without label smoothing. `None` if no loss is finite.
    pub loss: Option<f64>,
    /// Number of images for each pair of label and prediction that occurs, ordered by label.
    pub confusions: Vec<Confusion>,
    /// Images with the largest losses, the largest first.
    pub worst: Vec<ImageLoss>,
    /// Retrieval among pairs of images and captions. Then the classes are the captions, and the loss is the cross-entropy with the caption of an
    /// image among all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<Recall>,
    /// Texts of the images. Then [`correct`](Self::correct) counts those that were read exactly, and there are no classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// Figures of maps. Then there are no classes, and none of the images counts as [`correct`](Self::correct).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
}

/// Number of images of a class that were predicted as a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Confusion {
    /// Class of the images.
    pub label: usize,
    /// Class with the largest logit.
    pub prediction: usize,
    /// Number of images.
    pub images: u64,
}

/// Loss of a validation image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageLoss {
    /// Index in the validation set.
    pub index: usize,
    /// Name of the image.
    pub name: String,
    /// Class of the image.
    pub label: usize,
    /// Class with the largest logit.
    pub prediction: usize,
    /// Probability of the predicted class. `None` if it is not finite.
    pub probability: Option<f32>,
    /// Loss without label smoothing. `None` if it is not finite.
    pub loss: Option<f64>,
}

impl Evaluation {
    /// Returns the share of the images that were classified correctly, or [`Figures::share`] for maps.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        match &self.figures {
            Some(figures) => figures.share(),
            None => self.correct as f64 / self.images.max(1) as f64,
        }
    }

    /// Returns an evaluation without classes after `step` steps.
    pub(super) fn without_classes(step: u64, images: u64, correct: u64) -> Self {
        Self {
            step,
            images,
            correct,
            loss: None,
            confusions: Vec::new(),
            worst: Vec::new(),
            recall: None,
            reading: None,
            figures: None,
        }
    }

    /// Writes the evaluation as JSON.
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string(self).map_err(|error| Error::internal("evaluation", error))?;
        replace_file(file, |out| out.write_all((text + "\n").as_bytes()))
    }

    /// Reads the evaluation of a run. Returns `None` if there is none within the first `steps` steps.
    pub(super) fn read(file: &Path, steps: u64) -> Result<Option<Self>> {
        if !file.exists() {
            return Ok(None);
        }
        let bytes = regular_file::read(file).map_err(|error| Error::io(file, error))?;
        let evaluation: Self = serde_json::from_slice(&bytes).map_err(|error| Error::config(file, error))?;
        Ok(Some(evaluation).filter(|evaluation| evaluation.step <= steps))
    }
}

/// Result of an image, which ranks send to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageResult {
    pub(super) index: usize,
    label: usize,
    prediction: usize,
    /// Bits of the f32, since JSON has no infinity.
    probability: u32,
    /// Bits of the f64.
    loss: u64,
}

impl ImageResult {
    /// Creates the result of the image `index` with its label and its prediction.
    pub(super) fn new(index: usize, [label, prediction]: [usize; 2], probability: f32, loss: f64) -> Self {
        Self {
            index,
            label,
            prediction,
            probability: probability.to_bits(),
            loss: loss.to_bits(),
        }
    }
}

/// Sums up the results of images.
#[derive(Debug)]
pub(super) struct Tally {
    loss: LossKind,
    loss_sum: f64,
    finite_losses: u64,
    confusions: BTreeMap<(usize, usize), u64>,
    /// The images with the largest losses so far, the largest first.
    worst: Vec<ImageLoss>,
}

impl Tally {
    pub(super) fn new(loss: LossKind) -> Self {
        Self {
            loss,
            loss_sum: 0.0,
            finite_losses: 0,
            confusions: BTreeMap::new(),
            worst: Vec::new(),
        }
    }

    /// Returns the results of the images of a batch.
    pub(super) fn results(&self, batch: &Batch, outputs: &Outputs) -> Result<Vec<ImageResult>> {
        let losses = self.losses(batch, outputs)?;
        let images = batch.samples.iter().zip(&batch.labels).enumerate();
        let results = images.filter_map(|(place, (sample, &label))| {
            let top = outputs.image(place).top(1);
            let top = top.first()?;
            Some(ImageResult {
                index: sample.index,
                label,
                prediction: top.index,
                probability: top.probability.to_bits(),
                loss: losses[place].to_bits(),
            })
        });
        Ok(results.collect())
    }

    /// Adds the result of an image.
    pub(super) fn add(&mut self, dataset: &dyn Dataset, result: &ImageResult) {
        let ImageResult {
            index,
            label,
            prediction,
            ..
        } = *result;
        let (probability, loss) = (f32::from_bits(result.probability), f64::from_bits(result.loss));
        self.count(label, prediction, loss);
        if self.is_worst(loss) {
            self.insert(ImageLoss {
                index,
                name: dataset.name(index),
                label,
                prediction,
                probability: Some(probability).filter(|probability| probability.is_finite()),
                loss: Some(loss).filter(|loss| loss.is_finite()),
            });
        }
    }

    /// Returns the loss of each image.
    fn losses(&self, batch: &Batch, outputs: &Outputs) -> Result<Vec<f64>> {
        let logits = outputs
            .logits()
            .ok_or_else(|| Error::argument("model", "has no classifier"))?;
        let shape = [logits.nrows(), logits.ncols()];
        let array = |values: Vec<f64>| {
            let mismatch = || Error::internal("evaluation", "logits and targets differ in size");
            Array::new(shape, values).ok_or_else(mismatch)
        };
        let targets = batch.targets(shape[1], 0.0);
        let targets = array(targets.into_iter().map(f64::from).collect())?;
        let logits = array(logits.iter().copied().map(f64::from).collect())?;
        let losses = Loss(self.loss).eval(&[&logits, &targets]);
        let losses = losses.map_err(|error| Error::internal("evaluation", error))?;
        Ok(losses
            .into_iter()
            .flat_map(|losses| losses.values().to_vec())
            .collect())
    }

    fn count(&mut self, label: usize, prediction: usize, loss: f64) {
        *self.confusions.entry((label, prediction)).or_default() += 1;
        if loss.is_finite() {
            self.loss_sum += loss;
            self.finite_losses += 1;
        }
    }

    /// Returns true if an image with this loss belongs to the worst ones.
    fn is_worst(&self, loss: f64) -> bool {
        self.worst.len() < WORST_IMAGES
            || self
                .worst
                .last()
                .is_some_and(|last| order(last.loss) < order(Some(loss)))
    }

    /// Inserts an image before those with smaller losses.
    fn insert(&mut self, image: ImageLoss) {
        let loss = order(image.loss);
        let place = self.worst.partition_point(|other| order(other.loss) >= loss);
        self.worst.insert(place, image);
        self.worst.truncate(WORST_IMAGES);
    }

    /// Returns the evaluation after `step` steps.
    pub(super) fn finish(self, step: u64) -> Evaluation {
        let correct = self
            .confusions
            .iter()
            .filter(|((label, prediction), _)| label == prediction);
        Evaluation {
            step,
            images: self.confusions.values().sum(),
            correct: correct.map(|(_, images)| images).sum(),
            loss: (self.finite_losses > 0).then(|| self.loss_sum / self.finite_losses as f64),
            confusions: self
                .confusions
                .iter()
                .map(|(&(label, prediction), &images)| Confusion {
                    label,
                    prediction,
                    images,
                })
                .collect(),
            worst: self.worst,
            recall: None,
            reading: None,
            figures: None,
        }
    }
}

/// Returns a number by which losses are ordered. Losses that are not finite are the largest.
fn order(loss: Option<f64>) -> f64 {
    loss.filter(|loss| loss.is_finite()).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(index: usize, loss: Option<f64>) -> ImageLoss {
        ImageLoss {
            index,
            name: format!("{index}.png"),
            label: 0,
            prediction: 1,
            probability: Some(0.5),
            loss,
        }
    }

    #[test]
    fn the_largest_losses_are_kept_in_order() {
        let mut tally = Tally::new(LossKind::CrossEntropy);
        for index in 0..100 {
            // A permutation of 0 to 99.
            let loss = f64::from(index * 37 % 100);
            if tally.is_worst(loss) {
                tally.insert(image(index as usize, Some(loss)));
            }
        }
        assert!(tally.is_worst(f64::NAN) && !tally.is_worst(76.0) && tally.is_worst(76.5));
        tally.insert(image(100, None));
        let evaluation = tally.finish(7);
        let losses: Vec<Option<f64>> = evaluation.worst.iter().map(|image| image.loss).collect();
        let expected: Vec<Option<f64>> = std::iter::once(None)
            .chain((77..100).rev().map(|loss| Some(f64::from(loss))))
            .collect();
        assert_eq!(losses, expected);
    }

    #[test]
    fn confusions_are_counted_and_a_later_evaluation_is_not_read() {
        let mut tally = Tally::new(LossKind::CrossEntropy);
        for (label, prediction, loss) in [(0, 0, 0.5), (1, 0, 1.5), (1, 0, f64::NAN), (1, 1, 1.0)] {
            tally.count(label, prediction, loss);
        }
        let evaluation = tally.finish(7);
        assert_eq!((evaluation.images, evaluation.correct), (4, 2));
        assert_eq!((evaluation.accuracy(), evaluation.loss), (0.5, Some(1.0)));
        let confusions: Vec<_> = evaluation
            .confusions
            .iter()
            .map(|c| (c.label, c.prediction, c.images))
            .collect();
        assert_eq!(confusions, [(0, 0, 1), (1, 0, 2), (1, 1, 1)]);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("evaluation.json");
        assert_eq!(Evaluation::read(&file, 7).unwrap(), None);
        evaluation.write(&file).unwrap();
        assert_eq!(Evaluation::read(&file, 6).unwrap(), None);
        assert_eq!(Evaluation::read(&file, 7).unwrap(), Some(evaluation));
    }
}
