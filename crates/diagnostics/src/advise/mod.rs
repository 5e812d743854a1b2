//! Predicts the speed of a model on a device, names what bounds it, and suggests changes: `hipvit advise`.
//!
//! Predictions use the roofline model (S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful
//! visual performance model for multicore architectures", Communications of the ACM 52(4), 2009). A step has
//! two times: its operations at the peak rate of its dtype, and its bytes at the memory bandwidth. The longer
//! one counts. Each operand is read once and the result written once. The cost of the step's launches is
//! added.
//!
//! **Predictions are bounds, not measurements**: kernels reach a part of the peaks, and caches keep what one
//! step writes for the next. A prediction needs no device, only a plan and a datasheet. [`measure()`] adds
//! measurements on a device.
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

mod advice;
mod hardware;
mod measure;
mod options;
mod plot;
mod predict;
mod requirement;
mod subject;
mod suggest;
#[cfg(test)]
mod tests;
mod text;

pub use advice::{Advice, SCHEMA};
pub use hardware::Hardware;
pub use measure::measure;
pub use options::Options;
pub use plot::plot;
pub use predict::{Bound, Configuration, MemoryNeeds, Prediction, StepBound};
pub use requirement::{Candidate, Requirement};
pub use suggest::{Basis, Suggestion};

use self::predict::Planner;
use self::subject::Subject;
use hipvit::error::Result;
use hipvit::model::{self, LoadOptions, Model};
use hipvit::session::Place;

/// Predicts the speed of a model without running it. Measures the peaks of an installed device that has no
/// datasheet.
///
/// # Errors
///
/// - The error of loading or planning the model.
/// - [`hipvit::Error::Argument`] for a GPU without a datasheet, with similar names, or for a dtype that the device
///   does not compute in.
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

/// Loads a model of any size, because nothing is run.
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
