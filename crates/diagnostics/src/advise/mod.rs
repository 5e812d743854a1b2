//! What a model needs of a device, what bounds it there, and what to change next: `hipvit advise`.
//!
//! Predictions are those of the roofline model (S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance
//! model for multicore architectures", Communications of the ACM 52(4), 2009): a step takes the longer of its operations at the
//! peak rate of its dtype and its bytes at the memory's bandwidth, each operand read once and the result written once; and what its
//! launches cost is added. **They are bounds, not measurements**: kernels reach a part of the peaks, and caches keep
//! what one step writes for the next. A prediction needs no device, only a plan and a datasheet; [`measure()`] puts what a device
//! really does beside it.
//!
//! ```
//! use hipvit_diagnostics::advise::{Options, advise};
//!
//! # fn main() -> hipvit::Result<()> {
//! let options = Options { gpu: Some("MI300X".into()), batch: 64, ..Options::default() };
//! let advice = advise(&options)?;
//! println!("{}", advice.text(Some(100)));
//! # Ok(()) }
//! ```

mod hardware;
mod measure;
mod plot;
mod predict;
mod requirement;
mod suggest;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;

use serde::Serialize;

pub use hardware::Hardware;
pub use measure::measure;
pub use plot::plot;
pub use predict::{Bound, Configuration, MemoryNeeds, Prediction, StepBound};
pub use requirement::{Candidate, Requirement};
pub use suggest::{Basis, Suggestion};

use self::predict::Planner;
use self::suggest::Subject;
use hipvit::error::{Error, Result};
use hipvit::model::{self, LoadOptions, Model};
use hipvit::session::{Device, Place};

/// The version of [`Advice`]'s JSON: another number after the slash where a field changes its meaning or goes.
pub const SCHEMA: &str = "hipvit.advise/1";

/// What to advise on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The model's directory or its name on the hub; `None` is the embedded TinyViT32.
    pub model: Option<PathBuf>,
    /// The image size, if not the model's own.
    pub image_size: Option<[usize; 2]>,
    /// The GPU or CPU to predict for by its datasheet, whether it is there or not; `None` is [`device`](Self::device).
    pub gpu: Option<String>,
    /// The device that is there.
    pub device: Device,
    /// Threads on the CPU; by default one per core.
    pub threads: Option<usize>,
    /// Images per run, 1 if it is 0.
    pub batch: usize,
    /// How it runs otherwise.
    pub configuration: Configuration,
    /// Images per second that are wanted.
    pub rate: Option<f64>,
    /// The part of the bound that is expected of a device where nothing was measured, see [`Requirement`].
    pub efficiency: Option<f64>,
    /// What a launch costs, in seconds, instead of [`Hardware::launch_seconds`].
    pub launch_seconds: Option<f64>,
}

/// What a model needs, what bounds it, and what to change.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The model's name.
    pub model: String,
    /// Images per run.
    pub batch: usize,
    /// How it runs.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// On what.
    pub hardware: Hardware,
    /// The bounds.
    pub prediction: Prediction,
    /// Images per second end to end, if that was measured.
    pub measured_images_per_second: Option<f64>,
    /// What to change, the largest predicted gain first, further GPUs last.
    pub suggestions: Vec<Suggestion>,
    /// What would not help, and why.
    pub no_gain: Vec<String>,
    /// What the wanted rate needs.
    pub requirement: Option<Requirement>,
    #[serde(skip)]
    options: Options,
}

/// Predicts, without running the model. On a device that is there and has no datasheet, its peaks are measured.
///
/// # Errors
///
/// The model cannot be loaded or planned; [`Error::Argument`] for a GPU without a datasheet, with the nearest names, and for
/// a dtype that the device does not compute in.
pub fn advise(options: &Options) -> Result<Advice> {
    let batch = options.batch.max(1);
    let configuration = options.configuration;
    let (hardware, gpu) = match &options.gpu {
        Some(name) => (Hardware::named(name)?, None),
        None => match options.device.open()? {
            Place::Gpu(gpu) => (Hardware::gpu(&gpu)?, Some(gpu)),
            Place::Cpu { .. } => (Hardware::this_cpu(options.threads)?, None),
        },
    };
    let hardware = hardware.launches(options.launch_seconds);
    let model = load(options)?;
    let name = model.name.clone();
    let planner = Planner::new(model.graph);
    let prediction = planner.predict(&hardware, configuration, batch)?;
    let subject = Subject {
        planner: &planner,
        hardware: &hardware,
        gpu: gpu.as_ref(),
        preprocess: &model.preprocess,
        configuration,
        batch,
        prediction: &prediction,
        rate: options.rate,
        efficiency: requirement::efficiency(options.efficiency)?,
    };
    let (suggestions, no_gain) = suggest::suggest(&subject)?;
    let requirement = match options.rate {
        Some(rate) => Some(requirement::requirement(&subject, rate)?),
        None => None,
    };
    Ok(Advice {
        schema: SCHEMA,
        model: name,
        batch,
        configuration,
        hardware,
        prediction,
        measured_images_per_second: None,
        suggestions,
        no_gain,
        requirement,
        options: options.clone(),
    })
}

/// The model, of whatever size: nothing is run.
fn load(options: &Options) -> Result<Model> {
    let load = LoadOptions {
        image_size: options.image_size,
        max_flops: Some(u64::MAX),
        ..LoadOptions::default()
    };
    match &options.model {
        Some(path) => model::load(path, &load),
        None => model::tinyvit32(&load),
    }
}

fn refused(argument: &'static str, reason: impl std::fmt::Display) -> Error {
    Error::argument(argument, reason)
}
