//! Evaluation of frozen features: a weighted k-NN classifier, and a linear classifier.
//!
//! A [`Probe`] has the features of training and validation images. [`Probe::knn`] follows the evaluation of DINO (Caron et al. 2021).
//! [`Probe::linear`] is logistic regression by L-BFGS, with the L2 strength selected on held-out training images as for CLIP (Radford et al.
//! 2021).

mod lbfgs;
mod linear;
mod neighbours;

use std::iter::Sum;
use std::sync::Arc;

use hipvit::ndarray::{Array2, ArrayView2};
use hipvit::{Error, NonFinite, Outputs, Session};
use hipvit_data::{Batch, Dataset};
use serde::Serialize;

use crate::inference::run_dataset;
pub use linear::{LinearOptions, LinearResult, Trial};

/// Temperature of the votes in DINO's evaluation.
pub const TEMPERATURE: f64 = 0.07;
/// Numbers of neighbours in DINO's evaluation.
pub const NEIGHBOURS: [usize; 4] = [10, 20, 100, 200];

/// Errors of a probe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// An error of the engine, or an invalid argument.
    #[error(transparent)]
    Engine(#[from] Error),
    /// An error of the dataset, or a broken image that is not skipped.
    #[error(transparent)]
    Data(#[from] hipvit_data::Error),
}

/// Embeddings of labelled images.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    values: Array2<f32>,
    labels: Vec<usize>,
    classes: usize,
}

/// Share of the validation images that are classified correctly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Accuracy {
    /// Share of the images whose class has the highest score.
    pub accuracy: f64,
    /// Share of the images whose class has one of the five highest scores. `None` if there are at most five classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_top5: Option<f64>,
}

/// Accuracy of the k-NN classifier for one number of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KnnResult {
    /// Number of neighbours that vote.
    pub k: usize,
    /// Accuracy on the validation images.
    #[serde(flatten)]
    pub accuracy: Accuracy,
}

/// Features of training and validation images.
#[derive(Clone, Debug)]
pub struct Probe {
    train: Features,
    validation: Features,
}

impl Features {
    /// Creates features from embeddings, a row per image, and the class of each image.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if there are no images, the numbers of rows and labels differ, a label is not below `classes`, or a value is
    /// NaN or infinite.
    pub fn new(values: Array2<f32>, labels: Vec<usize>, classes: usize) -> Result<Self, ProbeError> {
        let refuse = |reason: String| Err(Error::argument("features", reason).into());
        if values.nrows() != labels.len() || labels.is_empty() {
            return refuse(format!(
                "{} rows for {} labels: each image needs a row and a label",
                values.nrows(),
                labels.len()
            ));
        }
        if let Some(label) = labels.iter().find(|label| **label >= classes) {
            return refuse(format!("label {label} is not one of {classes} classes"));
        }
        if let Some(row) = values.rows().into_iter().position(|row| !is_finite(row.iter())) {
            return refuse(format!("image {row} has NaN or infinite values"));
        }
        Ok(Self {
            values,
            labels,
            classes,
        })
    }

    /// Computes the embeddings of all images of a dataset. With `skip_broken`, broken images are left out. `on_batch` is called for each batch,
    /// with the images that were left out.
    ///
    /// # Errors
    ///
    /// Returns a [`ProbeError`] for a broken image that is not skipped, if no image can be read, for an embedding that is not finite, and for
    /// errors of the device.
    pub fn extract(
        session: &Session,
        dataset: Arc<dyn Dataset>,
        skip_broken: bool,
        on_batch: &mut dyn FnMut(&Batch),
    ) -> Result<Self, ProbeError> {
        let (mut values, mut labels, mut channels) = (Vec::new(), Vec::new(), 0);
        let named = dataset.clone();
        run_dataset(session, dataset, skip_broken, None, |batch, outputs| {
            on_batch(batch);
            check_finite(&*named, batch, outputs)?;
            if values.is_empty() {
                channels = outputs.embeddings().ncols();
                values.reserve(named.len() * channels);
            }
            values.extend(outputs.embeddings());
            labels.extend(&batch.labels);
            Ok::<(), ProbeError>(())
        })?;
        if labels.is_empty() {
            return Err(Error::argument("dataset", "contains no image that can be read").into());
        }
        let values = Array2::from_shape_vec((labels.len(), channels), values);
        let values = values.map_err(|error| Error::internal("features", error))?;
        Self::new(values, labels, named.classes().len())
    }

    /// Returns the number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true if there are no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns the number of channels of an embedding.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.values.ncols()
    }

    /// Returns the embeddings, a row per image.
    #[must_use]
    pub fn values(&self) -> ArrayView2<'_, f32> {
        self.values.view()
    }
}

impl Probe {
    /// Creates a probe.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the sets differ in the number of classes or channels.
    pub fn new(train: Features, validation: Features) -> Result<Self, ProbeError> {
        let sizes = |features: &Features| [features.classes, features.channels()];
        if sizes(&train) != sizes(&validation) {
            let [classes, channels] = sizes(&train);
            let [other_classes, other_channels] = sizes(&validation);
            let reason = format!(
                "training has {classes} classes and {channels} channels, validation has {other_classes} and {other_channels}"
            );
            return Err(Error::argument("features", reason).into());
        }
        Ok(Self { train, validation })
    }

    /// Returns the features of the training images.
    #[must_use]
    pub fn train(&self) -> &Features {
        &self.train
    }

    /// Returns the features of the validation images.
    #[must_use]
    pub fn validation(&self) -> &Features {
        &self.validation
    }

    /// Returns the [`NEIGHBOURS`] that the training set has, or the size of a smaller training set.
    #[must_use]
    pub fn default_neighbours(&self) -> Vec<usize> {
        let images = self.train.len();
        let mut fitting: Vec<usize> = NEIGHBOURS.into_iter().filter(|&k| k <= images).collect();
        if fitting.is_empty() {
            fitting.push(images);
        }
        fitting
    }
}

/// Numbers of images by the rank of their class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ranks {
    images: usize,
    first: usize,
    first_five: usize,
}

impl Ranks {
    /// Adds an image whose class has `rank` classes before it.
    fn add(&mut self, rank: usize) {
        self.images += 1;
        self.first += usize::from(rank == 0);
        self.first_five += usize::from(rank < 5);
    }

    fn accuracy(self, classes: usize) -> Accuracy {
        let share = |images: usize| images as f64 / self.images as f64;
        Accuracy {
            accuracy: share(self.first),
            accuracy_top5: (classes > 5).then(|| share(self.first_five)),
        }
    }
}

impl Sum for Ranks {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            images: sum.images + part.images,
            first: sum.first + part.first,
            first_five: sum.first_five + part.first_five,
        })
    }
}

/// Returns the number of classes before `label`. A higher score comes first, then a lower index.
fn rank<T: Copy + PartialOrd>(scores: &[T], label: usize) -> usize {
    let score = scores[label];
    let is_before = |&class: &usize| scores[class] > score || (scores[class] == score && class < label);
    (0..scores.len()).filter(is_before).count()
}

fn is_finite<'a>(mut values: impl Iterator<Item = &'a f32>) -> bool {
    values.all(|value| value.is_finite())
}

fn check_positive(what: &'static str, value: f64) -> Result<(), ProbeError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Error::argument(what, format!("is {value}, expected a positive number")).into())
}

/// Checks that the embeddings of a batch are finite. The error names the image.
fn check_finite(dataset: &dyn Dataset, batch: &Batch, outputs: &Outputs) -> Result<(), Error> {
    let rows = outputs.embeddings().rows().into_iter().zip(&batch.samples);
    for (row, sample) in rows {
        let count = row.iter().filter(|value| !value.is_finite()).count();
        if let Some(results) = NonFinite::new("embedding", count, row.len()) {
            let image = dataset.name(sample.index);
            return Err(Error::NonFinite { image, results });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hipvit::ndarray::arr2;

    use super::*;

    #[test]
    fn ties_are_ranked_by_index_and_top_5_needs_six_classes() {
        let scores = [0.5, 2.0, 0.5, 1.0];
        assert_eq!([0, 1, 2, 3].map(|label| rank(&scores, label)), [2, 0, 3, 1]);
        let mut ranks = Ranks::default();
        [0, 4, 5, 0].into_iter().for_each(|rank| ranks.add(rank));
        let [five, six] = [5, 6].map(|classes| ranks.accuracy(classes));
        assert_eq!((five.accuracy, five.accuracy_top5), (0.5, None));
        assert_eq!((six.accuracy, six.accuracy_top5), (0.5, Some(0.75)));
    }

    #[test]
    fn invalid_features_and_arguments_are_refused_by_name() {
        let values = arr2(&[[1.0, 0.0], [0.0, 1.0]]);
        let refused = |result: Result<Features, ProbeError>| result.unwrap_err().to_string();
        let error = refused(Features::new(values.clone(), vec![0], 2));
        assert!(error.contains("2 rows for 1 labels"), "{error}");
        let error = refused(Features::new(values.clone(), vec![0, 2], 2));
        assert!(error.contains("label 2 is not one of 2 classes"), "{error}");
        let error = refused(Features::new(arr2(&[[f32::NAN]]), vec![0], 1));
        assert!(error.contains("image 0 has NaN"), "{error}");
        let set = Features::new(values, vec![0, 1], 2).unwrap();
        let narrow = Features::new(arr2(&[[1.0]]), vec![0], 2).unwrap();
        let error = Probe::new(set.clone(), narrow).unwrap_err().to_string();
        assert!(error.contains("2 channels, validation has 2 and 1"), "{error}");
        let probe = Probe::new(set.clone(), set).unwrap();
        assert_eq!(probe.default_neighbours(), [2]);
        let error = probe.knn(&[3], TEMPERATURE).unwrap_err().to_string();
        assert!(
            error.contains("3 neighbours, but there are 2 training images"),
            "{error}"
        );
        let error = probe.knn(&[1], 0.0).unwrap_err().to_string();
        assert!(error.contains("temperature: is 0, expected"), "{error}");
    }
}
