//! The result of a prediction.

use serde::Serialize;

use super::hardware::Hardware;
use super::options::Options;
use super::predict::{Configuration, Prediction};
use super::requirement::Requirement;
use super::suggest::Suggestion;

/// Version of [`Advice`]'s JSON. The number after the slash changes if a field changes its meaning or is
/// removed.
pub const SCHEMA: &str = "hipvit.advise/1";

/// Result of [`advise`](super::advise()): needs, bounds and suggestions.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Name of the model.
    pub model: String,
    /// Batch size.
    pub batch: usize,
    /// Configuration of the model.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// Device of the prediction.
    pub hardware: Hardware,
    /// Bounds of the plan.
    pub prediction: Prediction,
    /// Measured images per second end to end, if measured.
    pub measured_images_per_second: Option<f64>,
    /// Suggested changes, with the largest predicted gain first and additional GPUs last.
    pub suggestions: Vec<Suggestion>,
    /// Changes that would not help, and why.
    pub no_gain: Vec<String>,
    /// Devices that reach the required rate, if one was given.
    pub requirement: Option<Requirement>,
    #[serde(skip)]
    pub(super) options: Options,
}
