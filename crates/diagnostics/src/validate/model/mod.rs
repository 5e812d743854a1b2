//! Compares a whole model with a baseline, layer by layer, on the same pixels: `hipvit validate --model`.
//!
//! The compared values are the tokens before the first block, after each block and after the final norm, the
//! embedding and the logits.
//!
//! Layers as outputs change the plan: the last block then computes all tokens, and nothing overwrites them.
//! So the model is also run as it is served, with its results only. It runs three times, so that on a GPU the
//! last run replays a captured graph.
//!
//! The tolerance of a layer is derived, not chosen. Each side may differ from the exact result by
//! [`model_tolerance`] in its dtype for the nodes that the layer depends on. So the two may differ by the
//! sum. The tolerance bounds two errors: the largest error of an element relative to the largest magnitude,
//! and the norm of all errors relative to that of the values. The report names the first layer beyond its
//! tolerance, because all later layers have wrong operands.

mod baseline;
mod images;
mod report;
mod side;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use baseline::Baseline;
pub use report::{Layer, LayerReport, SideInfo};

use self::side::{Results, Side};
use super::digest;
use hipvit::error::{Error, Result};
use hipvit::graph::Optimizations;
use hipvit::hip::Runtime;
use hipvit::image::RgbImage;
use hipvit::model::{self, LoadOptions, Model};
use hipvit::reference::{Difference, Mismatch, check_close, model_tolerance};
use hipvit::session::{Device, Place};
use hipvit::tensor::DType;

/// Options of [`validate_model`].
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Directory or hub name of the model; `None` is the embedded TinyViT32.
    pub model: Option<PathBuf>,
    /// Files of the baseline; by default the model's. They may be another model of the same architecture,
    /// such as a quantised one.
    pub baseline_model: Option<PathBuf>,
    /// Image size; by default the model's.
    pub image_size: Option<[usize; 2]>,
    /// Device of the model.
    pub device: Device,
    /// Compute precision.
    pub dtype: DType,
    /// Baseline. The default is the CPU for a GPU, and the unoptimised plan for the CPU.
    pub against: Option<Baseline>,
    /// Images. If empty, the samples of the embedded model, or random structured images.
    pub images: Vec<RgbImage>,
    /// Number of CPU threads; by default one per core.
    pub threads: Option<usize>,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            model: None,
            baseline_model: None,
            image_size: None,
            device: Device::default(),
            dtype: DType::F32,
            against: None,
            images: Vec::new(),
            threads: None,
        }
    }
}

impl ModelOptions {
    fn load(&self, path: Option<&PathBuf>, load: &LoadOptions) -> Result<Model> {
        let load = LoadOptions {
            image_size: self.image_size,
            ..load.clone()
        };
        match path {
            Some(path) => model::load(path, &load),
            None => model::tinyvit32(&load),
        }
    }
}

/// Runs the model and the baseline, and compares them layer by layer. A layer beyond its tolerance is not an
/// error; the [`LayerReport`] has it.
///
/// # Errors
///
/// - The error of loading a model, or of a device.
/// - [`Error::Argument`] for a baseline that the device does not have, or that has another architecture than
///   the model.
pub fn validate_model(options: &ModelOptions) -> Result<LayerReport> {
    let (place, no_gpu) = match options.device.open()? {
        Place::Cpu { no_gpu } => (None, no_gpu),
        Place::Gpu(gpu) => (Some(gpu), None),
    };
    let against = options.against.clone().unwrap_or(match place {
        Some(_) => Baseline::Cpu,
        None => Baseline::Unoptimized,
    });
    let baseline_path = options.baseline_model.as_ref().or(options.model.as_ref());
    let served = options.load(options.model.as_ref(), &LoadOptions::default())?;
    if options.baseline_model.is_some() {
        same_form(&served, &options.load(baseline_path, &LoadOptions::default())?)?;
    }
    let layered = LoadOptions {
        embedded_tokens: true,
        tokens: true,
        hidden_layers: (0..served.info.depth).collect(),
        ..LoadOptions::default()
    };
    let model = options.load(options.model.as_ref(), &layered)?;
    let baseline_model = options.load(baseline_path, &layered)?;

    let images = if options.images.is_empty() {
        images::default(&model, options.model.is_none())?
    } else {
        options.images.clone()
    };
    let pixels = model.preprocess.apply_batch(&images)?;
    let threads = options.threads;
    let mut candidate = Side::new(place.clone(), options.dtype, Optimizations::default(), threads);
    let mut baseline = match &against {
        Baseline::Cpu => Side::new(None, DType::F32, Optimizations::default(), threads),
        Baseline::Unoptimized => Side::new(place.clone(), options.dtype, Optimizations::NONE, threads),
        Baseline::Eager if place.is_none() => {
            let reason = "`eager` is a GPU's baseline: the CPU replays no graphs; use unoptimized";
            return Err(Error::argument("against", reason));
        }
        Baseline::Eager => Side::new(place.clone(), options.dtype, Optimizations::default(), threads),
        Baseline::Provider(name) => {
            let gpu = Runtime::named(name)?.device(0)?;
            Side::new(Some(gpu), options.dtype, Optimizations::default(), threads)
        }
    };
    let weights = digest::weights(&model.graph);
    let found = candidate.run(&model.graph, &pixels, images.len(), 1)?;
    let wanted = baseline.run(&baseline_model.graph, &pixels, images.len(), 1)?;
    let mut layers = compare(&found, &wanted, false)?;
    // Run the model as it is served.
    let found = candidate.run(&served.graph, &pixels, images.len(), 3)?;
    layers.extend(compare(&found, &wanted, true)?);

    let failed = layers.iter().filter(|layer| !layer.within).count();
    let first_beyond = layers.iter().find(|layer| !layer.within);
    Ok(LayerReport {
        schema: report::SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        model: model.name,
        weights_sha256: weights,
        images: images.len(),
        pixels_sha256: digest::pixels(&pixels),
        candidate: candidate.info(
            options.device == Device::Auto,
            no_gpu.map(|error| error.to_string()),
        ),
        against,
        baseline: baseline.info(false, None),
        baseline_model: options.baseline_model.as_ref().map(|_| baseline_model.name),
        first_beyond: first_beyond.map(|layer| layer.name.clone()),
        failed,
        code: candidate.code()?,
        layers,
    })
}

/// Fails unless the layers of both models can be compared.
fn same_form(model: &Model, baseline: &Model) -> Result<()> {
    let form = |model: &Model| {
        let info = &model.info;
        [info.depth, info.dim, info.tokens, info.classes]
    };
    let (of_model, of_baseline) = (form(model), form(baseline));
    if of_model != of_baseline {
        let text = |[depth, dim, tokens, classes]: [usize; 4]| {
            format!("{depth} blocks, {dim} channels, {tokens} tokens, {classes} classes")
        };
        let reason = format!(
            "{} has {}, {} has {}: name a model of the same form",
            baseline.name,
            text(of_baseline),
            model.name,
            text(of_model)
        );
        return Err(Error::argument("baseline", reason));
    }
    Ok(())
}

/// Compares each result of `found` with that of the baseline.
fn compare(found: &Results, wanted: &Results, served: bool) -> Result<Vec<Layer>> {
    let mut layers = Vec::new();
    for result in found.in_order() {
        let Some(reference) = wanted.get(result.kind) else {
            continue;
        };
        let tolerance =
            model_tolerance(found.dtype, result.nodes) + model_tolerance(wanted.dtype, reference.nodes);
        let values: Vec<f64> = reference.values.iter().map(|&value| f64::from(value)).collect();
        let (difference, within): (Difference, bool) = match check_close(&result.values, &values, tolerance) {
            Ok(difference) => (difference, true),
            Err(Mismatch::Far { difference, .. }) => (difference, false),
            Err(mismatch @ Mismatch::Length { .. }) => {
                return Err(Error::graph(result.name(served), mismatch));
            }
        };
        layers.push(Layer {
            name: result.name(served),
            shape: result.shape.clone(),
            nodes: result.nodes,
            elementwise_error: difference.elementwise,
            normwise_error: difference.normwise,
            tolerance,
            worst_index: difference.worst,
            got: difference.candidate,
            want: difference.reference,
            within,
        });
    }
    Ok(layers)
}
