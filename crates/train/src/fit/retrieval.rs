//! Retrieval among the validation pairs: how often the caption of an image is among the nearest, and an image of a caption.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hipvit::ndarray::{Array2, ArrayView1, Axis, s};
use hipvit::outputs::normalize;
use hipvit::session::TextEncoder;
use hipvit::{Error, Session};
use hipvit_data::Dataset;
use rayon::prelude::*;

use super::captions::Captions;
use super::evaluation::ImageResult;
use super::holdout::numbered;
use super::recall::Recall;
use super::{Callbacks, Evaluation, Fit, FitError, Tally, broken_elsewhere, broken_texts, loss_kind};
use crate::inference::run_dataset;
use crate::trainer::Weights;

/// Images whose similarities with all captions are computed at once.
const BLOCK: usize = 128;

/// Images with their embeddings, and the captions that they have.
struct Pairs {
    /// Index of each image in the dataset.
    indices: Vec<usize>,
    /// Column of each image's caption.
    columns: Vec<usize>,
    /// Number of each image among the different ones. A list with several captions of an image has it several times.
    numbers: Vec<usize>,
    different: Vec<Image>,
    /// `[images, D]`, each of unit length.
    images: Array2<f32>,
    /// `[captions, D]`, each of unit length.
    texts: Array2<f32>,
    /// Number of each column's caption.
    labels: Vec<usize>,
    /// Factor of the similarities.
    scale: f64,
}

/// An image that may be in the set several times.
struct Image {
    /// Its first row.
    first: usize,
    /// Columns of its captions.
    captions: BTreeSet<usize>,
}

/// Result of a block of images.
struct Block {
    results: Vec<ImageResult>,
    /// Number of captions that are nearer than the nearest of its own, for each image that was not in the set before.
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
        let names: Vec<String> = images.iter().map(|&(index, _)| dataset.name(index)).collect();
        let pairs = Pairs::new(&session, captions, (&images, &names), rows, scale.into())?;
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
    /// Embeds the captions of `images`, which are `(index, label)` and have names. `rows` has the embeddings of the images.
    fn new(
        session: &Session,
        captions: &Captions,
        (images, names): (&[(usize, usize)], &[String]),
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
        let own: Vec<usize> = images.iter().map(|(_, label)| columns[label]).collect();
        let (numbers, different) = by_image(names, &own);
        Ok(Self {
            indices: images.iter().map(|&(index, _)| index).collect(),
            columns: own,
            numbers,
            different,
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
        let mut nearest = vec![(f32::NAN, usize::MAX); self.labels.len()];
        for start in (0..self.indices.len()).step_by(BLOCK) {
            for (image, row) in self.similarities(start).rows().into_iter().enumerate() {
                let image = start + image;
                let column = self.columns[image];
                let found = (row[column], self.numbers[image]);
                if precedes(found, nearest[column]) {
                    nearest[column] = found;
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
            block.results.push(self.result(image, row));
            let number = self.numbers[image];
            let Image { first, captions } = &self.different[number];
            if *first != image {
                continue;
            }
            let of_captions = captions.iter().map(|&at| (row[at], at));
            let nearer = |best, other| if precedes(other, best) { other } else { best };
            let best = of_captions.fold((f32::NAN, usize::MAX), nearer);
            let others = || row.iter().enumerate().filter(|(at, _)| !captions.contains(at));
            let rank = others()
                .filter(|&(at, &found)| precedes((found, at), best))
                .count();
            block.ranks.push(rank);
            for (at, &found) in others() {
                block.nearer[at] += usize::from(precedes((found, number), own[at]));
            }
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
        let column = self.columns[image];
        let is_own = self.different[self.numbers[image]].captions.contains(&nearest);
        let nearest = if is_own { column } else { nearest };
        let logit = |similarity: f32| self.scale * (f64::from(similarity) - f64::from(largest));
        let log_sum = row
            .iter()
            .map(|&similarity| logit(similarity).exp())
            .sum::<f64>()
            .ln();
        let own = row[column];
        ImageResult::new(
            self.indices[image],
            [self.labels[column], self.labels[nearest]],
            (-log_sum).exp() as f32,
            log_sum - logit(own),
        )
    }
}

/// Returns the number of each row's image, and the different images.
fn by_image(names: &[String], columns: &[usize]) -> (Vec<usize>, Vec<Image>) {
    let numbers = numbered(names.iter());
    let mut different: Vec<Image> = Vec::new();
    for (row, (&number, &column)) in numbers.iter().zip(columns).enumerate() {
        if number == different.len() {
            different.push(Image {
                first: row,
                captions: BTreeSet::new(),
            });
        }
        different[number].captions.insert(column);
    }
    (numbers, different)
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
    rows.axis_iter_mut(Axis(0)).for_each(normalize);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns pairs in a plane, by the angles of different images and of captions in degrees.
    fn pairs(images: &[(usize, f64)], texts: &[f64]) -> Pairs {
        let names: Vec<String> = (0..images.len()).map(|image| image.to_string()).collect();
        named_pairs(&names, images, texts)
    }

    fn named_pairs(names: &[String], images: &[(usize, f64)], texts: &[f64]) -> Pairs {
        let rows = |angles: Vec<f64>| {
            let values = angles.iter().flat_map(|angle| {
                let (sin, cos) = angle.to_radians().sin_cos();
                [2.0 * cos as f32, 2.0 * sin as f32]
            });
            unit(Array2::from_shape_vec((angles.len(), 2), values.collect()).unwrap())
        };
        let columns: Vec<usize> = images.iter().map(|&(column, _)| column).collect();
        let (numbers, different) = by_image(names, &columns);
        Pairs {
            indices: (0..images.len()).map(|image| 10 + image).collect(),
            columns,
            numbers,
            different,
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

    /// As COCO's captions: each caption of an image has a line.
    #[test]
    fn an_image_may_have_several_captions() {
        let angles = [0.0, 60.0];
        let images: Vec<(usize, f64)> = (0..6).map(|text| (text, angles[text / 3])).collect();
        let names: Vec<String> = (0..6).map(|text| format!("{}.png", text / 3)).collect();
        // The third caption of the first image is nearer to the second image.
        let texts = [1.0, 2.0, 40.0, 58.0, 61.0, 62.0];
        let (results, recall) = named_pairs(&names, &images, &texts).compare();
        assert_eq!(results.len(), 6);
        let found = [recall.image_to_text_1, recall.image_to_text_5];
        assert_eq!(found, [1.0, 1.0], "the nearest caption of each image is its own");
        assert!((recall.text_to_image_1 - 5.0 / 6.0).abs() < 1e-9, "{recall:?}");
        assert_eq!(recall.text_to_image_5, 1.0);
    }

    /// A model that has diverged finds nothing.
    #[test]
    fn embeddings_that_are_no_numbers_are_not_found() {
        let images: Vec<(usize, f64)> = (0..10).map(|text| (text, f64::NAN)).collect();
        let (_, recall) = pairs(&images, &[f64::NAN; 10]).compare();
        assert_eq!((recall.image_to_text_5, recall.text_to_image_5), (0.0, 0.0));
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
