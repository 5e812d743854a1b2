//! Retrieval among the validation pairs: how often the caption of an image is among the nearest, and an image of a caption.

use std::collections::BTreeMap;
use std::sync::Arc;

use hipvit::ndarray::{Array2, ArrayView1, Axis, s};
use hipvit::session::TextEncoder;
use hipvit::{Error, Session};
use hipvit_data::Dataset;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::captions::Captions;
use super::evaluation::ImageResult;
use super::{Callbacks, Evaluation, Fit, FitError, Tally, broken_elsewhere, broken_texts, loss_kind};
use crate::inference::run_dataset;
use crate::trainer::Weights;

/// Images whose similarities with all captions are computed at once.
const BLOCK: usize = 128;

/// Shares of validation images and captions that are found. Captions that occur several times count once, and have several images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recall {
    /// Share of the images whose caption is the nearest.
    pub image_to_text_1: f64,
    /// Share of the images whose caption is one of the 5 nearest.
    pub image_to_text_5: f64,
    /// Share of the captions with an image that is the nearest.
    pub text_to_image_1: f64,
    /// Share of the captions with an image that is one of the 5 nearest.
    pub text_to_image_5: f64,
}

/// Images with their embeddings, and the captions that they have.
struct Pairs {
    /// Index of each image in the dataset.
    indices: Vec<usize>,
    /// Column of each image's caption.
    columns: Vec<usize>,
    /// `[images, D]`, each of unit length.
    images: Array2<f32>,
    /// `[captions, D]`, each of unit length.
    texts: Array2<f32>,
    /// Number of each column's caption.
    labels: Vec<usize>,
    /// Factor of the similarities.
    scale: f64,
}

/// Result of a block of images.
struct Block {
    results: Vec<ImageResult>,
    /// Number of captions that are nearer than its own, for each image.
    ranks: Vec<usize>,
    /// Number of other images that are nearer than the nearest of its own, for each caption.
    nearer: Vec<usize>,
}

impl Fit {
    /// Evaluates the present weights on the validation pairs. Counts and reports broken images if there are `callbacks`.
    pub(super) fn evaluate_pairs(
        &mut self,
        dataset: &Arc<dyn Dataset>,
        captions: &Captions,
        weights: Weights,
        callbacks: Option<&mut dyn Callbacks>,
    ) -> Result<Evaluation, FitError> {
        let session = self.session(weights)?;
        let (mut rows, mut images, mut broken) = (Vec::new(), Vec::new(), Vec::new());
        run_dataset(
            &session,
            dataset.clone(),
            self.options.skip_broken,
            None,
            |batch, outputs| {
                broken.extend(broken_texts(&batch.broken));
                if !batch.is_empty() {
                    rows.extend(outputs.embeddings().iter().copied());
                    let labels = batch.samples.iter().zip(&batch.labels);
                    images.extend(labels.map(|(sample, &label)| (sample.index, label)));
                }
                Ok::<(), FitError>(())
            },
        )?;
        if let Some(callbacks) = callbacks {
            let broken: Vec<_> = broken.into_iter().map(broken_elsewhere).collect();
            self.report_broken(&broken, callbacks);
        }
        let scale = self.trainer.contrastive_scale()?;
        let scale = scale.map_or(captions.contrastive().scale, |[scale, _]| scale);
        let pairs = Pairs::new(&session, captions, &images, rows, scale.into())?;
        let (results, recall) = pairs.compare();
        let mut tally = Tally::new(loss_kind(&self.recipe));
        for result in &results {
            tally.add(&**dataset, result);
        }
        Ok(Evaluation {
            recall: Some(recall),
            ..tally.finish(self.progress.step)
        })
    }
}

impl Pairs {
    /// Embeds the captions of `images`, which are `(index, label)`. `rows` has the embeddings of the images.
    fn new(
        session: &Session,
        captions: &Captions,
        images: &[(usize, usize)],
        rows: Vec<f32>,
        scale: f64,
    ) -> Result<Self, FitError> {
        let mut columns: BTreeMap<usize, usize> = images.iter().map(|&(_, label)| (label, 0)).collect();
        columns
            .values_mut()
            .enumerate()
            .for_each(|(place, column)| *column = place);
        let ids: Vec<&[u32]> = columns.keys().map(|&label| captions.validation(label)).collect();
        let texts = TextEncoder::new(session)?.embed(&ids)?;
        let width = rows.len() / images.len().max(1);
        let rows = Array2::from_shape_vec((images.len(), width), rows);
        Ok(Self {
            indices: images.iter().map(|&(index, _)| index).collect(),
            columns: images.iter().map(|(_, label)| columns[label]).collect(),
            images: unit(rows.map_err(|error| Error::internal("evaluation", error))?),
            texts: unit(texts),
            labels: columns.into_keys().collect(),
            scale,
        })
    }

    /// Returns the result of each image, and the recall.
    fn compare(&self) -> (Vec<ImageResult>, Recall) {
        let own = self.nearest_own();
        let starts: Vec<usize> = (0..self.indices.len()).step_by(BLOCK).collect();
        let blocks: Vec<Block> = starts.par_iter().map(|&start| self.block(start, &own)).collect();
        let mut nearer = vec![0; self.labels.len()];
        let (mut results, mut ranks) = (Vec::new(), Vec::new());
        for block in blocks {
            results.extend(block.results);
            ranks.extend(block.ranks);
            nearer
                .iter_mut()
                .zip(block.nearer)
                .for_each(|(sum, count)| *sum += count);
        }
        let recall = Recall {
            image_to_text_1: share_below(&ranks, 1),
            image_to_text_5: share_below(&ranks, 5),
            text_to_image_1: share_below(&nearer, 1),
            text_to_image_5: share_below(&nearer, 5),
        };
        (results, recall)
    }

    /// Returns, for each caption, the largest similarity with one of its images, and the number of the image.
    fn nearest_own(&self) -> Vec<(f32, usize)> {
        let mut nearest = vec![(f32::NEG_INFINITY, usize::MAX); self.labels.len()];
        for start in (0..self.indices.len()).step_by(BLOCK) {
            for (image, row) in self.similarities(start).rows().into_iter().enumerate() {
                let image = start + image;
                let column = self.columns[image];
                if row[column] > nearest[column].0 {
                    nearest[column] = (row[column], image);
                }
            }
        }
        nearest
    }

    /// Returns the similarities of a block of images and all captions.
    fn similarities(&self, start: usize) -> Array2<f32> {
        let end = (start + BLOCK).min(self.indices.len());
        self.images.slice(s![start..end, ..]).dot(&self.texts.t())
    }

    fn block(&self, start: usize, own: &[(f32, usize)]) -> Block {
        let mut block = Block {
            results: Vec::new(),
            ranks: Vec::new(),
            nearer: vec![0; own.len()],
        };
        for (image, row) in self.similarities(start).rows().into_iter().enumerate() {
            let image = start + image;
            let column = self.columns[image];
            let is_nearer =
                |(at, &found): (usize, &f32)| at != column && precedes((found, at), (row[column], column));
            let rank = row.iter().enumerate().filter(|&pair| is_nearer(pair)).count();
            block.ranks.push(rank);
            for (at, &found) in row.iter().enumerate().filter(|(at, _)| *at != column) {
                block.nearer[at] += usize::from(precedes((found, image), own[at]));
            }
            block.results.push(self.result(image, row));
        }
        block
    }

    /// Returns the nearest caption of an image, and the cross-entropy with its own among all.
    fn result(&self, image: usize, row: ArrayView1<'_, f32>) -> ImageResult {
        let first = (0, row[0]);
        let (nearest, largest) = row
            .iter()
            .copied()
            .enumerate()
            .fold(first, |best, other| if other.1 > best.1 { other } else { best });
        let logit = |similarity: f32| self.scale * (f64::from(similarity) - f64::from(largest));
        let log_sum = row
            .iter()
            .map(|&similarity| logit(similarity).exp())
            .sum::<f64>()
            .ln();
        let own = row[self.columns[image]];
        ImageResult::new(
            self.indices[image],
            [self.labels[self.columns[image]], self.labels[nearest]],
            (-log_sum).exp() as f32,
            log_sum - logit(own),
        )
    }
}

/// Returns true if the first of two numbers with places comes before the second: if it is larger, or equal and earlier. All numbers come
/// before one that is NaN.
fn precedes((a, at): (f32, usize), (b, other): (f32, usize)) -> bool {
    a > b || (a == b && at < other) || b.is_nan()
}

/// Returns the share of ranks below a limit.
fn share_below(ranks: &[usize], limit: usize) -> f64 {
    ranks.iter().filter(|&&rank| rank < limit).count() as f64 / ranks.len().max(1) as f64
}

/// Divides each row by its length.
fn unit(mut rows: Array2<f32>) -> Array2<f32> {
    for mut row in rows.axis_iter_mut(Axis(0)) {
        let squares: f64 = row.iter().map(|&value| f64::from(value).powi(2)).sum();
        let length = squares.sqrt().max(1e-12);
        row.mapv_inplace(|value| (f64::from(value) / length) as f32);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns pairs in a plane, by the angles of images and of captions in degrees.
    fn pairs(images: &[(usize, f64)], texts: &[f64]) -> Pairs {
        let rows = |angles: Vec<f64>| {
            let values = angles.iter().flat_map(|angle| {
                let (sin, cos) = angle.to_radians().sin_cos();
                [2.0 * cos as f32, 2.0 * sin as f32]
            });
            unit(Array2::from_shape_vec((angles.len(), 2), values.collect()).unwrap())
        };
        Pairs {
            indices: (0..images.len()).map(|image| 10 + image).collect(),
            columns: images.iter().map(|&(column, _)| column).collect(),
            images: rows(images.iter().map(|&(_, angle)| angle).collect()),
            texts: rows(texts.to_vec()),
            labels: (0..texts.len()).map(|text| 100 + text).collect(),
            scale: 10.0,
        }
    }

    #[test]
    fn images_and_captions_are_found_by_rank() {
        // Six captions around 0°, 10°, …; the image of the last one is nearest to the first, and the first has two images.
        let texts = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0];
        let images = [
            (0, 1.0),
            (0, 24.0),
            (1, 11.0),
            (2, 19.0),
            (3, 31.0),
            (4, 42.0),
            (5, -3.0),
        ];
        let (results, recall) = pairs(&images, &texts).compare();
        assert_eq!(results.len(), 7);
        // The second image is nearest to 20°, and the last one to 0°: its own caption is the sixth of six.
        assert!((recall.image_to_text_1 - 5.0 / 7.0).abs() < 1e-9, "{recall:?}");
        assert!((recall.image_to_text_5 - 6.0 / 7.0).abs() < 1e-9, "{recall:?}");
        // The image of 50° is the last of all seven.
        assert!((recall.text_to_image_1 - 5.0 / 6.0).abs() < 1e-9, "{recall:?}");
        assert!((recall.text_to_image_5 - 5.0 / 6.0).abs() < 1e-9, "{recall:?}");
    }

    /// A model that embeds everything equally finds what comes first.
    #[test]
    fn equal_similarities_are_ordered_by_place() {
        let images: Vec<(usize, f64)> = (0..10).map(|text| (text, 5.0)).collect();
        let (_, recall) = pairs(&images, &[5.0; 10]).compare();
        let expected = [0.1, 0.5, 0.1, 0.5];
        let found = [
            recall.image_to_text_1,
            recall.image_to_text_5,
            recall.text_to_image_1,
            recall.text_to_image_5,
        ];
        assert_eq!(found, expected);
        assert!(precedes((0.0, 7), (f32::NAN, 1)) && !precedes((f32::NAN, 0), (0.0, 1)));
    }
}
