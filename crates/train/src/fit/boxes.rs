//! Objects of a run that trains a detector.

use std::collections::BTreeMap;
use std::path::Path;

use hipvit::SessionBuilder;
use hipvit::detect::Detector;
use hipvit::error::Error;
use hipvit::image::RgbImage;
use hipvit::model::{Checkpoint, detector_training};
use hipvit_data::{Batch, Dataset, Objects, Splits};

use super::annotation::Annotation;
use super::average_precision::{self, Found, ImageObjects, Known};
use super::error::FitError;
use super::figures::BoxFigures;
use crate::BoxOptions;

const OBJECTS: Annotation<Objects> = Annotation {
    what: "objects",
    made: "detects",
    key: "the key objects",
    of: |annotations| annotations.objects.as_ref(),
};

/// Numbers of an object in the targets: the class and the box.
const WIDTH: usize = 5;

/// Objects of images, and the loss of the detector.
#[derive(Debug)]
pub(super) struct Boxes {
    pub(super) options: BoxOptions,
}

impl Boxes {
    /// Reads how the model in `directory` is trained, and checks the objects of the splits.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] with the image of an object that does not fit the model. The errors of the model's configuration.
    pub(super) fn open(directory: &Path, splits: &Splits) -> Result<Self, FitError> {
        let training = detector_training(directory)?;
        if let Some(validation) = &splits.validation {
            for index in 0..validation.len() {
                check(&**validation, index, training.classes)?;
            }
        }
        let mut most = 1;
        for index in 0..splits.train.len() {
            let count = check(&*splits.train, index, training.classes)?;
            if count > training.queries {
                let reason = format!(
                    "{} has {count} objects, more than the {} of `num_queries`",
                    splits.train.name(index),
                    training.queries
                );
                return Err(Error::argument("data", reason).into());
            }
            most = most.max(count);
        }
        Ok(Self {
            options: BoxOptions {
                loss: training.loss,
                objects: most,
            },
        })
    }

    /// Returns the targets of the images of a batch.
    pub(super) fn targets(&self, dataset: &dyn Dataset, batch: &Batch) -> Result<Vec<f32>, FitError> {
        let len = self.options.objects * WIDTH;
        let mut rows = Vec::with_capacity(batch.len() * len);
        for (sample, size) in batch.samples.iter().zip(&batch.original_sizes) {
            let end = rows.len() + len;
            let Objects { boxes, classes, .. } = OBJECTS.of_image(dataset, sample.index)?;
            let [height, width] = size.map(|extent| extent as f32);
            for (&[left, top, columns, lines], &class) in boxes.iter().zip(classes) {
                let centre = [left + 0.5 * columns, top + 0.5 * lines];
                rows.push(class as f32);
                rows.extend([
                    centre[0] / width,
                    centre[1] / height,
                    columns / width,
                    lines / height,
                ]);
            }
            // Rows without an object.
            rows.resize(end, -1.0);
        }
        Ok(rows)
    }

    /// Returns an evaluation of a checkpoint's model.
    ///
    /// # Errors
    ///
    /// The errors of writing the model to a temporary directory, and of loading it.
    pub(super) fn tally(checkpoint: &Checkpoint, builder: &SessionBuilder) -> Result<BoxTally, FitError> {
        let directory = tempfile::tempdir().map_err(|error| Error::io("temporary directory", error))?;
        checkpoint.write_values(directory.path(), &BTreeMap::new())?;
        Ok(BoxTally {
            detector: Detector::load(directory.path(), builder)?,
            images: Vec::new(),
        })
    }
}

/// Checks the objects of an image. Returns their number.
fn check(dataset: &dyn Dataset, index: usize, classes: usize) -> Result<usize, Error> {
    let objects = OBJECTS.of_image(dataset, index)?;
    let refused = |reason: String| {
        Err(Error::argument(
            "data",
            format!("{} has {reason}", dataset.name(index)),
        ))
    };
    if let Some(class) = objects.classes.iter().find(|&&class| class >= classes) {
        return refused(format!(
            "an object of category {class}, but the model has {classes} classes. Give its configuration as many, and its heads new weights"
        ));
    }
    let is_empty = |of_box: &&[f32; 4]| {
        let is_finite = of_box.iter().all(|x| x.is_finite());
        !is_finite || of_box[2] <= 0.0 || of_box[3] <= 0.0
    };
    match objects.boxes.iter().find(is_empty) {
        Some(of_box) => refused(format!("the box {of_box:?}, which has no area. Leave it out")),
        None => Ok(objects.classes.len()),
    }
}

/// Objects of the images so far.
#[derive(Debug)]
pub(super) struct BoxTally {
    detector: Detector,
    images: Vec<ImageObjects>,
}

impl BoxTally {
    /// Detects objects in images, beside those of the dataset.
    pub(super) fn add(
        &mut self,
        dataset: &dyn Dataset,
        indices: &[usize],
        images: &[RgbImage],
    ) -> Result<(), FitError> {
        let detections = self.detector.detect(&images.iter().collect::<Vec<_>>(), 0.0)?;
        for (&index, found) in indices.iter().zip(detections) {
            let Objects { boxes, classes, .. } = OBJECTS.of_image(dataset, index)?;
            let known = boxes
                .iter()
                .zip(classes)
                .map(|(&[left, top, width, height], &class)| Known {
                    class,
                    corners: [left, top, left + width, top + height].map(f64::from),
                });
            let found = found.into_iter().map(|object| Found {
                class: object.class,
                score: object.score,
                corners: object.corners.map(f64::from),
            });
            self.images.push(ImageObjects {
                known: known.collect(),
                found: found.collect(),
            });
        }
        Ok(())
    }

    /// Returns the number of images.
    pub(super) fn images(&self) -> u64 {
        self.images.len() as u64
    }

    /// Returns the figures of all images.
    pub(super) fn figures(&self) -> BoxFigures {
        average_precision::figures(&self.images)
    }
}
