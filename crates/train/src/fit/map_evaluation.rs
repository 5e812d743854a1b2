//! Evaluation of a model that predicts maps.

use std::sync::Arc;

use hipvit_data::Dataset;

use super::boxes::Boxes;
use super::dense::Dense;
use super::figures::Figures;
use super::{Callbacks, Evaluation, Fit, FitError};
use crate::trainer::Weights;

impl Fit {
    /// Evaluates the present weights on the maps of the validation images. Counts and reports broken images if there are `callbacks`.
    pub(super) fn evaluate_maps(
        &mut self,
        dataset: &Arc<dyn Dataset>,
        dense: &Dense,
        weights: Weights,
        callbacks: Option<&mut dyn Callbacks>,
    ) -> Result<Evaluation, FitError> {
        let checkpoint = self.trainer.checkpoint();
        let checkpoint = checkpoint.with_values(&self.trainer.values(weights)?)?;
        let builder = self.session_builder()?;
        let (images, figures) = match dense {
            Dense::Depth(depths) => {
                let mut tally = depths.tally(checkpoint, &builder)?;
                self.decode_all(&**dataset, callbacks, |indices, images| {
                    tally.add(&**dataset, indices, images)
                })?;
                (tally.images(), Figures::Depth(tally.figures()))
            }
            Dense::Masks(masks) => {
                let mut tally = masks.tally(&checkpoint, &builder)?;
                self.decode_all(&**dataset, callbacks, |indices, images| {
                    tally.add(&**dataset, indices, images)
                })?;
                (tally.images(), Figures::Masks(tally.figures()))
            }
            Dense::Boxes(_) => {
                let mut tally = Boxes::tally(&checkpoint, &builder)?;
                self.decode_all(&**dataset, callbacks, |indices, images| {
                    tally.add(&**dataset, indices, images)
                })?;
                (tally.images(), Figures::Boxes(tally.figures()))
            }
        };
        Ok(Evaluation {
            figures: Some(figures),
            ..Evaluation::without_classes(self.progress.step, images, 0)
        })
    }
}
