//! Errors of a run.

use crate::recipe::RecipeError;

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// An error of the engine: model, device or file.
    #[error(transparent)]
    Engine(#[from] hipvit::Error),
    /// An error of the dataset, or a broken image that is not skipped.
    #[error(transparent)]
    Data(#[from] hipvit_data::Error),
    /// The recipe is invalid.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The loss or the norm of the gradients is NaN or infinite.
    #[error(
        "step {step} of epoch {epoch}: the {what} is {value}, {place}. The last checkpoint is unaffected. Start again with a lower \
         learning rate or a longer warm-up"
    )]
    NonFinite {
        /// Number of the step, counted from 1.
        step: u64,
        /// Number of the epoch, counted from 1.
        epoch: u64,
        /// Loss or norm of the gradients.
        what: &'static str,
        /// The value.
        value: f32,
        /// Where the first such value is.
        place: String,
    },
}
