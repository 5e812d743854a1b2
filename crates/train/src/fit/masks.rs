//! Masks of a run that trains SAM. Each image of a step has one prompt: a point of one of its objects, or the box around it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hipvit::SessionBuilder;
use hipvit::error::Error;
use hipvit::image::{Preprocess, RgbImage};
use hipvit::model::{Checkpoint, PromptRow, TensorValues};
use hipvit::segment::{MaskModel, Prompt, Segmenter};
use hipvit_data::random::{Draw, Purpose, Stream};
use hipvit_data::{Batch, Dataset, Map, Prepare, Splits};
use rayon::prelude::*;

use super::annotation::Annotation;
use super::dense_batch::DenseBatch;
use super::error::FitError;
use super::figures::MaskFigures;
use crate::recipe::Recipe;

const MASKS: Annotation<PathBuf> = Annotation {
    what: "masks",
    made: "predicts",
    key: "the column mask_file_name",
    of: |annotations| annotations.mask.as_ref(),
};

/// Share of the prompts of training that are points.
const POINTS: f64 = 0.5;

/// Objects of images, and how the model sees them.
#[derive(Debug)]
pub(super) struct Masks {
    model: Arc<MaskModel>,
    seed: u64,
}

/// An object of a map.
#[derive(Debug, Default)]
struct Object {
    /// Indices of its pixels, in ascending order.
    pixels: Vec<usize>,
}

impl Masks {
    /// Reads how the model in `directory` sees images and prompts.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for data without masks. The errors of loading the model.
    pub(super) fn open(directory: &Path, splits: &Splits, recipe: &Recipe) -> Result<Self, FitError> {
        MASKS.check(splits)?;
        let checkpoint = Checkpoint::open(Some(directory))?;
        Ok(Self {
            model: Arc::new(MaskModel::of_checkpoint(&checkpoint, &TensorValues::new())?),
            seed: recipe.seed,
        })
    }

    /// Returns the rule that resizes images.
    pub(super) fn resize(&self) -> Arc<dyn Prepare> {
        Arc::new(Padded(self.model.clone()))
    }

    /// Returns the images of a batch with a prompt each, and the masks of their objects.
    pub(super) fn batch(
        &self,
        dataset: &dyn Dataset,
        batch: &Batch,
        preprocess: &Preprocess,
    ) -> Result<DenseBatch, FitError> {
        let rows = batch.samples.par_iter().map(|sample| {
            let file = MASKS.of_image(dataset, sample.index)?;
            let map = Map::open(file)?;
            let mut stream = self.stream(batch.position.epoch, sample.index, sample.repeat);
            let (number, object) = chosen(&map, file, &mut stream)?;
            let prompt = if stream.chance(POINTS) {
                object.point(&map, &mut stream)
            } else {
                object.bounds(&map)
            };
            let row = self.model.prompt(&prompt, map.size)?;
            Ok::<_, FitError>((row, self.target(&map, number), self.model.resized(map.size)))
        });
        let rows: Vec<(PromptRow, Vec<f32>, [usize; 2])> = rows.collect::<Result<_, _>>()?;
        let mut planes = batch.planes(preprocess)?;
        let mut dense = DenseBatch::default();
        let side = self.model.side();
        for ((row, target, size), planes) in rows.into_iter().zip(planes.chunks_exact_mut(3 * side * side)) {
            clear_padding(planes, side, size);
            dense.values.extend(target);
            dense.positions.extend(row.positions);
            dense.kinds.extend(row.kinds);
        }
        dense.planes = Some(planes);
        Ok(dense)
    }

    /// Returns the random numbers of an image's prompt in an epoch.
    fn stream(&self, epoch: u32, index: usize, repeat: u8) -> Stream {
        let draw = Draw {
            purpose: Purpose::Prompt,
            epoch,
            index: index as u64,
            repeat,
        };
        Stream::new(self.seed, draw)
    }

    /// Returns 1 for each pixel of the model's mask whose centre the object covers, and 0 for the others.
    fn target(&self, map: &Map, number: u16) -> Vec<f32> {
        let side = self.model.mask_side();
        let resized = self.model.resized(map.size);
        let place = |index: usize, axis: usize| {
            let centre = (index as f64 + 0.5) * self.model.side() as f64 / side as f64;
            let place = centre * map.size[axis] as f64 / resized[axis] as f64;
            Some(place as usize).filter(|&place| place < map.size[axis])
        };
        let columns: Vec<Option<usize>> = (0..side).map(|column| place(column, 1)).collect();
        let pixels = (0..side).flat_map(|row| {
            let row = place(row, 0);
            columns
                .iter()
                .map(move |&column| Some(row? * map.size[1] + column?))
        });
        let share = |pixel: Option<usize>| {
            let is_covered = pixel.is_some_and(|pixel| map.values[pixel] == number);
            if is_covered { 1.0 } else { 0.0 }
        };
        pixels.map(share).collect()
    }

    /// Returns an evaluation of a checkpoint's model.
    pub(super) fn tally(
        &self,
        checkpoint: &Checkpoint,
        builder: &SessionBuilder,
    ) -> Result<MaskTally<'_>, FitError> {
        Ok(MaskTally {
            masks: self,
            segmenter: Segmenter::of_checkpoint(checkpoint, builder)?,
            figures: Vec::new(),
            images: 0,
        })
    }
}

/// Resizes images to the model's, with padding.
#[derive(Debug)]
struct Padded(Arc<MaskModel>);

impl Prepare for Padded {
    fn prepare(&self, image: RgbImage, _stream: &mut Stream) -> hipvit_data::Result<RgbImage> {
        let fitted = self.0.fit(&image);
        fitted.map_err(|error| hipvit_data::Error::Argument {
            what: "image",
            reason: error.to_string(),
        })
    }
}

/// Sets the padding of normalised planes to 0, as the model's processor does.
fn clear_padding(planes: &mut [f32], side: usize, [height, width]: [usize; 2]) {
    for plane in planes.chunks_exact_mut(side * side) {
        for (row, values) in plane.chunks_exact_mut(side).enumerate() {
            let kept = if row < height { width } else { 0 };
            values[kept..].fill(0.0);
        }
    }
}

/// Returns the objects of a map by their numbers.
fn objects(map: &Map) -> BTreeMap<u16, Object> {
    let mut objects: BTreeMap<u16, Object> = BTreeMap::new();
    for (pixel, &number) in map.values.iter().enumerate().filter(|(_, number)| **number > 0) {
        objects.entry(number).or_default().pixels.push(pixel);
    }
    objects
}

/// Returns an object of a map.
fn chosen(map: &Map, file: &Path, stream: &mut Stream) -> Result<(u16, Object), Error> {
    let objects = objects(map);
    let count = objects.len();
    if count == 0 {
        let reason = format!("{} has no object. Remove its image from the list", file.display());
        return Err(Error::argument("data", reason));
    }
    let found = objects.into_iter().nth(stream.index(count));
    found.ok_or_else(|| Error::internal("masks", "an object is missing"))
}

impl Object {
    /// Returns a prompt of one of the pixels.
    fn point(&self, map: &Map, stream: &mut Stream) -> Prompt {
        let pixel = self.pixels[stream.index(self.pixels.len())];
        let columns = map.size[1];
        Prompt::new().inside((pixel % columns) as f32, (pixel / columns) as f32)
    }

    /// Returns a prompt of the box around the object.
    fn bounds(&self, map: &Map) -> Prompt {
        let columns = map.size[1];
        let places = || self.pixels.iter().map(|pixel| [pixel % columns, pixel / columns]);
        let least = |axis: usize| places().map(|place| place[axis]).min().unwrap_or(0);
        let most = |axis: usize| places().map(|place| place[axis] + 1).max().unwrap_or(0);
        Prompt::new().within([least(0), least(1), most(0), most(1)].map(|place| place as f32))
    }
}

/// Figures of the prompts so far.
#[derive(Debug)]
pub(super) struct MaskTally<'a> {
    masks: &'a Masks,
    segmenter: Segmenter,
    figures: Vec<MaskFigures>,
    images: u64,
}

impl MaskTally<'_> {
    /// Segments each object of images by a point and by its box, and compares the masks with the highest scores with those of the dataset.
    pub(super) fn add(
        &mut self,
        dataset: &dyn Dataset,
        indices: &[usize],
        images: &[RgbImage],
    ) -> Result<(), FitError> {
        for (&index, image) in indices.iter().zip(images) {
            let map = Map::of_image(MASKS.of_image(dataset, index)?, [image.height, image.width])?;
            // No epoch has this number, so that all evaluations have the same prompts.
            let mut stream = self.masks.stream(u32::MAX, index, 0);
            let (mut prompts, mut numbers) = (Vec::new(), Vec::new());
            for (number, object) in objects(&map) {
                prompts.extend([object.point(&map, &mut stream), object.bounds(&map)]);
                numbers.extend([number; 2]);
            }
            let embedding = self.segmenter.encode(image)?;
            let found = self.segmenter.segment(&embedding, &prompts)?;
            for (segmentation, number) in found.iter().zip(numbers) {
                let mask = segmentation.best();
                let pairs = mask.pixels.iter().zip(&map.values);
                self.figures
                    .push(compared(pairs.map(|(&found, &value)| [found, value == number])));
            }
            self.images += 1;
        }
        Ok(())
    }

    /// Returns the number of images.
    pub(super) fn images(&self) -> u64 {
        self.images
    }

    /// Returns the means over the prompts.
    pub(super) fn figures(&self) -> MaskFigures {
        let mean = |of: fn(&MaskFigures) -> f64| {
            self.figures.iter().map(of).sum::<f64>() / self.figures.len().max(1) as f64
        };
        MaskFigures {
            pixel_accuracy: mean(|figures| figures.pixel_accuracy),
            mean_iou: mean(|figures| figures.mean_iou),
        }
    }
}

/// Compares the pixels of a mask with those of an object.
fn compared(pairs: impl Iterator<Item = [bool; 2]>) -> MaskFigures {
    let (mut pixels, mut equal, mut both, mut either) = (0_u64, 0_u64, 0_u64, 0_u64);
    for [found, expected] in pairs {
        pixels += 1;
        equal += u64::from(found == expected);
        both += u64::from(found && expected);
        either += u64::from(found || expected);
    }
    MaskFigures {
        pixel_accuracy: equal as f64 / pixels.max(1) as f64,
        mean_iou: both as f64 / either.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_compared_pixel_by_pixel() {
        let found = [true, true, false, false, true].into_iter();
        let expected = [true, false, false, true, true];
        let figures = compared(found.zip(expected).map(<[bool; 2]>::from));
        assert_eq!((figures.pixel_accuracy, figures.mean_iou), (0.6, 0.5));
    }

    #[test]
    fn padding_is_zero() {
        let mut planes = vec![1.0; 3 * 9];
        clear_padding(&mut planes, 3, [2, 3]);
        assert_eq!(planes[..9], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
        clear_padding(&mut planes, 3, [3, 1]);
        assert_eq!(planes[18..], [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
