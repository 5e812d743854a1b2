//! Loads ONNX files: the file's graph, and what an image classifier needs besides it.
//!
//! The file has no preprocessing and no labels. Both come from the configuration of timm or transformers beside the file, or the
//! preprocessing from an [`ImageRule`]. Without either, the model takes [tensors](InputKind::Tensors).

mod facts;
mod image_input;
pub(super) mod image_rule;
mod images;
mod rule;

use std::path::Path;

use hipvit_onnx::Options;

pub(super) use self::facts::check_flops;
use self::facts::{info, name};
use self::image_input::{ImageInput, NotImages};
pub use self::image_rule::ImageRule;
use self::rule::Prepared;
pub(super) use self::rule::config_beside;
use super::depth_source::DepthSource;
use super::detect_source::{BoxScoring, DetectSource};
use super::loaded::Model;
use super::options::{InputKind, LoadOptions};
use super::pixel_input::PixelInput;
use crate::error::{Error, Result};
use crate::image::{Filter, Preprocess, Rescale, Resize, ValueRule};
use crate::labels::Labels;
use crate::outputs::Scores;

/// Returns true if `path` names an ONNX file.
pub(super) fn is_onnx(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
}

/// An input's extents without a number in the file.
#[derive(Debug)]
pub(crate) struct OpenExtents {
    /// Name of the input.
    pub(crate) input: String,
    /// Axis and name of each.
    pub(crate) extents: Vec<(usize, String)>,
}

/// Returns the open extents of each input.
pub(crate) fn open_extents(path: &Path) -> Result<Vec<OpenExtents>> {
    let inputs = hipvit_onnx::inputs(path)?.into_iter();
    let open = |input: hipvit_onnx::Declared| {
        let extents = input.extents.into_iter().enumerate();
        let open = extents.filter_map(|(axis, extent)| match extent {
            hipvit_onnx::Extent::Named(name) => Some((axis, name)),
            hipvit_onnx::Extent::Fixed(_) => None,
        });
        OpenExtents {
            extents: open.collect(),
            input: input.name,
        }
    };
    Ok(inputs.map(open).collect())
}

/// Returns the names of the inputs of the ONNX file `path`, without loading the model.
///
/// # Errors
///
/// - [`Error::Argument`] if `path` does not end in `.onnx`.
/// - [`Error::Onnx`] if the file cannot be read or is not an ONNX model.
pub fn input_names(path: &Path) -> Result<Vec<String>> {
    if !is_onnx(path) {
        let reason = format!("{} is not an .onnx file", path.display());
        return Err(Error::argument("model", reason));
    }
    let inputs = hipvit_onnx::inputs(path)?.into_iter();
    Ok(inputs.map(|input| input.name).collect())
}

/// Loads the ONNX file `path`.
pub(super) fn load(path: &Path, options: &LoadOptions) -> Result<Model> {
    let supported = ["image size", "input", "extents", "image rule"];
    options.check_supported(&supported, "ONNX models, which return the outputs of their file")?;
    let image = match options.input {
        InputKind::Tensors => Err(NotImages::new("it was loaded for tensors")),
        InputKind::Pixels | InputKind::PixelValues => ImageInput::new(&hipvit_onnx::inputs(path)?),
    };
    let loaded = match image {
        Ok(image) => match rule::prepare(path, image, options)? {
            Ok(prepared) => images::load(path, prepared, options)?,
            Err(reason) => Err(reason),
        },
        Err(reason) => Err(reason),
    };
    match loaded {
        Ok(model) => Ok(model),
        Err(NotImages(reason)) if options.input == InputKind::PixelValues => {
            let reason = format!("{} does not take pixel values: {reason}", path.display());
            Err(Error::argument("input", reason))
        }
        Err(reason) => tensors(path, options, reason),
    }
}

/// Reads how images are prepared for the file `path`, which must have one input of images.
pub(super) fn depth_source(path: &Path, options: &LoadOptions) -> Result<DepthSource> {
    let (prepared, input) = prepare(path, options)?;
    Ok(DepthSource {
        preprocess: prepared.preprocess,
        input: Some(input),
    })
}

/// Reads how images are prepared and boxes are scored for the file `path`, which must have one input of images.
pub(super) fn detect_source(path: &Path, options: &LoadOptions) -> Result<DetectSource> {
    let (prepared, input) = prepare(path, options)?;
    let scoring = match prepared
        .model_type()
        .map(|kind| (kind, BoxScoring::of_model_type(kind)))
    {
        Some((_, Some(scoring))) => scoring,
        Some((kind, None)) => {
            let reason = format!(
                "`model_type` of {} is \"{kind}\", which is not supported; supported are {}",
                path.display(),
                BoxScoring::MODEL_TYPES
            );
            return Err(Error::argument("model", reason));
        }
        None => {
            let reason = format!(
                "no config.json beside {} says by `model_type` how boxes are scored. Add the one of the model",
                path.display()
            );
            return Err(Error::argument("model", reason));
        }
    };
    Ok(DetectSource {
        preprocess: prepared.preprocess.clone(),
        input: Some(input),
        scoring,
        labels: Box::new(move |classes| prepared.labels(classes)),
        model: None,
    })
}

fn prepare(path: &Path, options: &LoadOptions) -> Result<(Prepared, PixelInput)> {
    let declared = hipvit_onnx::inputs(path)?;
    let prepared = match ImageInput::new(&declared) {
        Ok(image) => rule::prepare(path, image, options)?,
        Err(reason) => Err(reason),
    };
    match (prepared, declared.into_iter().next()) {
        (Ok(prepared), Some(input)) => {
            let input = PixelInput {
                name: input.name,
                channels_last: prepared.image.channels_last,
            };
            Ok((prepared, input))
        }
        (Ok(_), None) => Err(Error::internal("inputs", "are missing")),
        (Err(NotImages(reason)), _) => {
            let reason = format!("{} does not take images: {reason}", path.display());
            Err(Error::argument("model", reason))
        }
    }
}

/// Loads the model with the inputs and outputs of the file. `reason` says why it does not take images.
fn tensors(path: &Path, options: &LoadOptions, reason: NotImages) -> Result<Model> {
    let options_of_file = Options {
        extents: options.extents.clone(),
        ..Options::default()
    };
    let model = hipvit_onnx::load(path, &options_of_file)?;
    check_flops(path, &model.graph, options)?;
    let info = info(&model, [0, 0], 0, 0, Some(reason.0));
    Ok(Model {
        name: name(path),
        // It is never applied: sessions of tensors refuse images.
        preprocess: Preprocess::new(
            Some((Resize::Exact { height: 1, width: 1 }, Filter::Bilinear)),
            None,
            ValueRule {
                rescale: Rescale::DivideBy255,
                normalize: None,
            },
        )?,
        labels: Labels::default(),
        scores: Scores::Softmax,
        text: None,
        packing: None,
        info,
        graph: model.graph,
    })
}
