//! What suggestions and requirements are for.

use super::hardware::Hardware;
use super::predict::{Configuration, Planner, Prediction};
use hipvit::hip;
use hipvit::image::Preprocess;

/// Model, configuration and device that suggestions are for.
pub(super) struct Subject<'a> {
    pub(super) planner: &'a Planner,
    pub(super) hardware: &'a Hardware,
    /// GPU, if it is installed.
    pub(super) gpu: Option<&'a hip::Device>,
    pub(super) preprocess: &'a Preprocess,
    pub(super) configuration: Configuration,
    pub(super) batch: usize,
    pub(super) prediction: &'a Prediction,
    pub(super) rate: Option<f64>,
    pub(super) efficiency: f64,
}
