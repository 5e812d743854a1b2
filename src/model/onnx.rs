//! Loads ONNX files: the file's graph, and what an image classifier needs besides it.
//!
//! The file has no preprocessing and no labels. Both come from the configuration of timm or transformers beside the file, or the
//! preprocessing from an [`ImageRule`]. Without either, the model takes [tensors](InputKind::Tensors).

mod images;
mod rule;

use std::path::Path;
use std::sync::Arc;

use hipvit_onnx::Options;

use self::images::{ImageInput, NotImages};
pub use self::rule::ImageRule;
use super::info::{Family, Info, Library, OnnxInfo};
use super::load::Model;
use super::options::{InputKind, LoadOptions, MAX_FLOPS};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::image::{Filter, Preprocess, Rescale, Resize, ValueRule};
use crate::labels::Labels;
use crate::outputs::Scores;
use crate::tensor::DType;
use crate::tensors::TensorInfo;

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
    check_options(options)?;
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

/// Refuses options that apply to Vision Transformers only.
fn check_options(options: &LoadOptions) -> Result<()> {
    let what = if options.packed.is_some() {
        "packed"
    } else if options.tokens || options.embedded_tokens {
        "tokens"
    } else if !options.hidden_layers.is_empty() {
        "hidden layers"
    } else {
        return Ok(());
    };
    let reason = "is not an option of ONNX models, which return the outputs of their file";
    Err(Error::argument(what, reason))
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

/// Refuses a model that takes more floating-point operations than the limit.
fn check_flops(path: &Path, graph: &Graph, options: &LoadOptions) -> Result<()> {
    let plan = Plan::new(Arc::new(graph.clone()), 1, DType::F32)?;
    let (flops, limit) = (plan.flops(), options.max_flops.unwrap_or(MAX_FLOPS));
    if flops <= limit {
        return Ok(());
    }
    let reason = format!(
        "a batch of 1 takes {:.1e} floating-point operations, more than the limit of {:.1e}; SessionBuilder::max_flops or --max-flops \
         raises it",
        flops as f64, limit as f64
    );
    Err(Error::config(path, reason))
}

/// Returns the file's name without its extension. A file called `model.onnx` has the name of its directory.
fn name(path: &Path) -> String {
    let stem = path
        .file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned();
    let directory = path.canonicalize().ok();
    let mut above = directory.iter().flat_map(|path| path.ancestors().skip(1));
    let directory = above.find(|directory| !directory.ends_with("onnx"));
    match directory.and_then(Path::file_name) {
        Some(directory) if stem == "model" => directory.to_string_lossy().into_owned(),
        _ => stem,
    }
}

/// Returns the facts about a model. `reason` says why it does not take images, if it does not.
fn info(
    model: &hipvit_onnx::Model,
    image_size: [usize; 2],
    classes: usize,
    dim: usize,
    reason: Option<String>,
) -> Info {
    let of_file = |info: &hipvit_onnx::Info| TensorInfo {
        counted: info.counted.clone(),
        ..TensorInfo::new(&info.name, info.element, info.dims.clone())
    };
    let constants = model.graph.values().iter().filter(|value| value.is_constant());
    Info {
        library: Library::Onnx,
        family: Family::Other,
        architecture: model.graph.name().to_owned(),
        image_size,
        patch: image_size.map(|side| side.max(1)),
        tokens: 0,
        any_aspect_ratio: false,
        prefix_tokens: 0,
        depth: 0,
        dim,
        heads: 0,
        merged_grid: None,
        classes,
        parameters: constants
            .map(|value| value.shape.iter().product::<usize>() as u64)
            .sum(),
        interpolated: None,
        ignored: Vec::new(),
        text: None,
        adapter: None,
        quantization: None,
        sparsity: None,
        onnx: Some(Box::new(OnnxInfo {
            opset: model.opset,
            producer: model.producer.clone(),
            inputs: model.inputs.iter().map(of_file).collect(),
            outputs: model.outputs.iter().map(of_file).collect(),
            operators: model.operators.clone(),
            no_images: reason,
        })),
    }
}
