//! Depths of a run that trains a model to estimate them.

use std::path::{Path, PathBuf};

use hipvit::SessionBuilder;
use hipvit::depth::DepthEstimator;
use hipvit::error::Error;
use hipvit::image::RgbImage;
use hipvit::model::{Checkpoint, LoadOptions, load};
use hipvit_data::{Batch, Dataset, Map, Splits};
use rayon::prelude::*;

use super::annotation::Annotation;
use super::error::FitError;
use super::figures::DepthFigures;
use crate::DepthLoss;
use crate::dense_loss::UNKNOWN;
use crate::recipe::Recipe;

const DEPTHS: Annotation<PathBuf> = Annotation {
    what: "depths",
    made: "estimates",
    key: "the column depth_file_name",
    of: |annotations| annotations.depth.as_ref(),
};

/// Bound of the ratio of depth and prediction of a pixel that is predicted well.
const DELTA_1: f64 = 1.25;

/// Largest prediction of a relative model after the fit, in multiples of the largest depth of the image.
const LARGEST: f64 = 10.0;

/// Depths of images, and the map that the model predicts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depths {
    /// Height and width of the map.
    size: [usize; 2],
    is_metric: bool,
    /// Number in a file per metre.
    scale: f64,
}

impl Depths {
    /// Reads how the model in `directory` predicts depths.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for data without depths, or a model that crops images. The errors of loading the model.
    pub(super) fn open(directory: &Path, splits: &Splits, recipe: &Recipe) -> Result<Self, FitError> {
        DEPTHS.check(splits)?;
        let model = load(directory, &LoadOptions::default())?;
        if model.preprocess.crop().is_some() {
            let reason =
                "crops images, whose depths would be those of a part. Use a processor without a crop";
            return Err(Error::argument("preprocessing", reason).into());
        }
        let map = model.info.depth_map;
        let map = map.ok_or_else(|| Error::argument("model", "estimates no depth"))?;
        Ok(Self {
            size: map.size,
            is_metric: map.is_metric,
            scale: recipe.depth.scale,
        })
    }

    /// Returns the loss of the model.
    pub(super) fn loss(&self) -> DepthLoss {
        if self.is_metric {
            DepthLoss::ScaleInvariant
        } else {
            DepthLoss::ScaleAndShiftInvariant
        }
    }

    /// Returns the targets of the images of a batch.
    pub(super) fn targets(&self, dataset: &dyn Dataset, batch: &Batch) -> Result<Vec<f32>, FitError> {
        let targets = batch.samples.par_iter().map(|sample| {
            let map = Map::open(DEPTHS.of_image(dataset, sample.index)?)?;
            let depths = self.metres(map.resized(self.size));
            Ok::<_, FitError>(if self.is_metric {
                depths
                    .map(|depth| depth.map_or(UNKNOWN, |depth| depth as f32))
                    .collect()
            } else {
                scaled(&depths.map(|depth| depth.map(f64::recip)).collect::<Vec<_>>())
            })
        });
        let targets: Vec<Vec<f32>> = targets.collect::<Result<_, _>>()?;
        Ok(targets.concat())
    }

    /// Returns the depths of a map in metres. 0 is an unknown depth.
    fn metres(self, map: Map) -> impl Iterator<Item = Option<f64>> {
        let scale = self.scale;
        let values = map.values.into_iter();
        values.map(move |value| (value > 0).then(|| f64::from(value) / scale))
    }

    /// Returns an evaluation of a checkpoint's model.
    pub(super) fn tally(
        &self,
        checkpoint: Checkpoint,
        builder: &SessionBuilder,
    ) -> Result<DepthTally, FitError> {
        Ok(DepthTally {
            depths: *self,
            estimator: DepthEstimator::of_checkpoint(checkpoint, builder)?,
            figures: Vec::new(),
        })
    }
}

/// Shifts and scales inverse depths to the range from 0 to 1, as MiDaS does.
fn scaled(inverse: &[Option<f64>]) -> Vec<f32> {
    let known = || inverse.iter().copied().flatten();
    let (least, most) = (
        known().fold(f64::INFINITY, f64::min),
        known().fold(f64::NEG_INFINITY, f64::max),
    );
    let range = (most - least).max(f64::MIN_POSITIVE);
    let target = |value: Option<f64>| value.map_or(UNKNOWN, |value| ((value - least) / range) as f32);
    inverse.iter().copied().map(target).collect()
}

/// Figures of the images so far.
#[derive(Debug)]
pub(super) struct DepthTally {
    depths: Depths,
    estimator: DepthEstimator,
    figures: Vec<DepthFigures>,
}

impl DepthTally {
    /// Estimates the depths of images, and compares them with those of the dataset. Images without a known depth are left out.
    pub(super) fn add(
        &mut self,
        dataset: &dyn Dataset,
        indices: &[usize],
        images: &[RgbImage],
    ) -> Result<(), FitError> {
        let estimates = self.estimator.estimate(&images.iter().collect::<Vec<_>>())?;
        let compared = indices.par_iter().zip(&estimates).map(|(&index, estimate)| {
            let file = DEPTHS.of_image(dataset, index)?;
            let map = Map::of_image(file, [estimate.nrows(), estimate.ncols()])?;
            let depths = self.depths.metres(map).zip(estimate);
            let pairs = depths.filter_map(|(depth, &estimate)| Some([f64::from(estimate), depth?]));
            let mut pairs: Vec<[f64; 2]> = pairs.collect();
            if !self.depths.is_metric {
                fit(&mut pairs);
            }
            Ok::<_, FitError>(figures(&pairs))
        });
        let compared: Vec<Option<DepthFigures>> = compared.collect::<Result<_, _>>()?;
        self.figures.extend(compared.into_iter().flatten());
        Ok(())
    }

    /// Returns the number of images.
    pub(super) fn images(&self) -> u64 {
        self.figures.len() as u64
    }

    /// Returns the means over the images.
    pub(super) fn figures(&self) -> DepthFigures {
        let mean = |of: fn(&DepthFigures) -> f64| {
            self.figures.iter().map(of).sum::<f64>() / self.figures.len().max(1) as f64
        };
        DepthFigures {
            abs_rel: mean(|figures| figures.abs_rel),
            delta_1: mean(|figures| figures.delta_1),
        }
    }
}

/// Returns the figures of the predictions and depths of an image. `None` if there are none.
fn figures(pairs: &[[f64; 2]]) -> Option<DepthFigures> {
    let mean = |of: &dyn Fn(f64, f64) -> f64| {
        pairs
            .iter()
            .map(|&[estimate, depth]| of(estimate, depth))
            .sum::<f64>()
            / pairs.len() as f64
    };
    (!pairs.is_empty()).then(|| DepthFigures {
        abs_rel: mean(&|estimate, depth| (estimate - depth).abs() / depth),
        delta_1: mean(&|estimate, depth| {
            let is_near = estimate < DELTA_1 * depth && depth < DELTA_1 * estimate;
            f64::from(u8::from(is_near))
        }),
    })
}

/// Converts relative predictions to depths: scaled and shifted, they fit the inverse depths best.
fn fit(pairs: &mut [[f64; 2]]) {
    let count = pairs.len().max(1) as f64;
    let mean = |of: &dyn Fn(&[f64; 2]) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (of_estimates, of_inverse) = (mean(&|pair| pair[0]), mean(&|pair| 1.0 / pair[1]));
    let variance = mean(&|pair| (pair[0] - of_estimates).powi(2));
    let covariance = mean(&|pair| (pair[0] - of_estimates) * (1.0 / pair[1] - of_inverse));
    let slope = if variance > 0.0 {
        covariance / variance
    } else {
        0.0
    };
    let deepest = pairs.iter().fold(0.0, |deepest: f64, pair| deepest.max(pair[1]));
    for pair in pairs {
        let inverse = slope * (pair[0] - of_estimates) + of_inverse;
        pair[0] = inverse.max(1.0 / (LARGEST * deepest)).recip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_means_over_known_pixels() {
        let found = figures(&[[2.0, 2.0], [2.4, 2.0], [2.5, 2.0], [1.5, 2.0]]).unwrap();
        // A ratio of exactly 1.25 is not below it, and 2.0 / 1.5 is above.
        assert!((found.abs_rel - (0.0 + 0.2 + 0.25 + 0.25) / 4.0).abs() < 1e-12);
        assert_eq!(found.delta_1, 0.5);
        assert_eq!(figures(&[]), None);
    }

    #[test]
    fn relative_depths_are_fitted_to_inverse_depths() {
        let depths = [2.0, 3.0, 4.0, 8.0];
        let mut pairs: Vec<[f64; 2]> = depths.iter().map(|&depth| [7.0 - 3.0 / depth, depth]).collect();
        fit(&mut pairs);
        for [estimate, depth] in pairs {
            assert!((estimate / depth - 1.0).abs() < 1e-9, "{estimate} {depth}");
        }
        let mut constant = [[1.0, 2.0], [1.0, 4.0]];
        fit(&mut constant);
        assert!((constant[0][0] - 1.0 / 0.375).abs() < 1e-9, "{constant:?}");
    }

    #[test]
    fn inverse_depths_have_the_range_from_0_to_1() {
        let scaled = scaled(&[Some(0.5), None, Some(0.25), Some(0.375)]);
        assert_eq!(scaled, [1.0, UNKNOWN, 0.0, 0.5]);
        assert_eq!(super::scaled(&[None, Some(0.5)]), [UNKNOWN, 0.0]);
    }
}
