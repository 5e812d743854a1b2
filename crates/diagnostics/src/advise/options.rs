//! Options of a prediction.

use std::path::PathBuf;

use super::predict::Configuration;
use hipvit::session::Device;

/// Options of [`advise`](super::advise()).
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directory or hub name of the model; `None` is the embedded TinyViT32.
    pub model: Option<PathBuf>,
    /// Image size; by default the model's.
    pub image_size: Option<[usize; 2]>,
    /// GPU or CPU to predict for by its datasheet, installed or not; `None` uses [`device`](Self::device).
    pub gpu: Option<String>,
    /// Installed device to predict for.
    pub device: Device,
    /// Number of CPU threads; by default one per core.
    pub threads: Option<usize>,
    /// Batch size; 0 means 1.
    pub batch: usize,
    /// Dtype, optimisations and graph replay.
    pub configuration: Configuration,
    /// Required images per second.
    pub rate: Option<f64>,
    /// Expected fraction of the bound if nothing was measured, see [`Requirement`](super::Requirement).
    pub efficiency: Option<f64>,
    /// Seconds per launch, instead of [`Hardware::launch_seconds`](super::Hardware::launch_seconds).
    pub launch_seconds: Option<f64>,
}
