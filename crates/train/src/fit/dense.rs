//! Maps of a run that trains a model to predict one for each image.

use std::path::Path;
use std::sync::Arc;

use hipvit::image::Preprocess;
use hipvit_data::{Batch, Dataset, Prepare, Splits};

use super::boxes::Boxes;
use super::dense_batch::DenseBatch;
use super::depths::Depths;
use super::error::FitError;
use super::kind::DataKind;
use super::masks::Masks;
use crate::Objective;
use crate::recipe::Recipe;

/// Maps that a model predicts, and how they become targets.
#[derive(Debug)]
pub(super) enum Dense {
    Depth(Depths),
    Boxes(Boxes),
    Masks(Masks),
}

impl Dense {
    /// Opens the maps of the splits for the model in `directory`. `None` for data of another kind.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](hipvit::Error::Argument) for a model or data that do not fit. The errors of loading the model.
    pub(super) fn open(
        kind: DataKind,
        directory: &Path,
        splits: &Splits,
        recipe: &Recipe,
    ) -> Result<Option<Self>, FitError> {
        match kind {
            DataKind::Classes | DataKind::Pairs | DataKind::Texts => Ok(None),
            DataKind::Depth => Ok(Some(Self::Depth(Depths::open(directory, splits, recipe)?))),
            DataKind::Masks => Ok(Some(Self::Masks(Masks::open(directory, splits, recipe)?))),
            DataKind::Boxes => Ok(Some(Self::Boxes(Boxes::open(directory, splits)?))),
        }
    }

    /// Returns the loss of the model.
    pub(super) fn objective(&self) -> Objective {
        match self {
            Self::Depth(depths) => Objective::Depth(depths.loss()),
            Self::Masks(_) => Objective::Masks,
            Self::Boxes(boxes) => Objective::Boxes(boxes.options),
        }
    }

    /// Returns the targets of the training images of a batch. `preprocess` normalises images.
    pub(super) fn batch(
        &self,
        dataset: &dyn Dataset,
        batch: &Batch,
        preprocess: &Preprocess,
    ) -> Result<DenseBatch, FitError> {
        match self {
            Self::Depth(depths) => Ok(DenseBatch {
                values: depths.targets(dataset, batch)?,
                ..DenseBatch::default()
            }),
            Self::Boxes(boxes) => Ok(DenseBatch {
                values: boxes.targets(dataset, batch)?,
                ..DenseBatch::default()
            }),
            Self::Masks(masks) => masks.batch(dataset, batch, preprocess),
        }
    }

    /// Returns the rule that resizes training images, if it is not that of the model's preprocessing.
    pub(super) fn resize(&self) -> Option<Arc<dyn Prepare>> {
        match self {
            Self::Depth(_) | Self::Boxes(_) => None,
            Self::Masks(masks) => Some(masks.resize()),
        }
    }
}
