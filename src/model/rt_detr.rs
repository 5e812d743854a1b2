//! Loads RT-DETR, which detects objects (<https://arxiv.org/abs/2304.08069>), and RT-DETRv2 (<https://arxiv.org/abs/2407.17140>), as
//! transformers stores them.
//!
//! A [backbone] makes maps of three sizes, the [encoder] fuses them, and the [decoder] makes boxes of the best pixels.

mod backbone;
mod config;
mod decoder;
mod encoder;
mod layers;
mod outputs;
mod positions;
mod training;

use std::path::Path;

use self::config::Config;
pub(crate) use self::outputs::{BOXES, LOGITS};
pub use self::training::{DETECTOR_OUTPUTS, DetectorTraining, detector_training};
use super::detect_source::{BoxScoring, DetectSource};
use super::fields::Fields;
use super::info::{Family, Info, Library};
use super::layers::Layers;
use super::loaded::Model;
use super::onnx::check_flops;
use super::options::{InputKind, LoadOptions};
use super::source::Source;
use super::weights::Weights;
use super::{hugging_face, preprocessing};
use crate::error::{Error, Result};
use crate::graph::{Graph, Role};
use crate::image::Preprocess;
use crate::ops::Permute;
use crate::outputs::Scores;
use crate::tensor::DType;

/// Beginnings of the names of copies of the decoder's heads, which older files have.
pub const DETECTOR_COPIES: [&str; 2] = ["class_embed.", "bbox_embed."];

const COPY: &str = "a copy of the decoder's head";
const OTHER_LAYERS: &str = "only the classes of the last layer are an output";
const TRAINING: &str = "training adds noisy queries";
const COUNTER: &str = "training counts batches";

/// Checks that the configuration is of RT-DETR, for errors of commands that cannot run it.
pub(super) fn is_rt_detr(config: Fields<'_>) -> bool {
    config::check_class(config).is_ok()
}

/// Loads the model at `path`, a directory or a name on the hub.
///
/// # Errors
///
/// - [`Error::Config`] for a model of another type, or whose configuration is not supported.
/// - [`Error::Argument`] for an option that RT-DETR does not have.
/// - The errors of [`load`](super::load()) about files.
pub(super) fn detect_source(path: &Path, options: &LoadOptions) -> Result<DetectSource> {
    options.check_supported(&["image size"], "RT-DETR, which detects objects")?;
    open(&Source::open(path)?, options)
}

/// Loads the graph that training differentiates. Its outputs `logits` and `pred_boxes` have the queries of the selected pixels, then those of each
/// layer.
///
/// # Errors
///
/// The errors of [`detect_source`].
pub(super) fn trained(source: &Source<'_>, options: &LoadOptions) -> Result<Model> {
    let model = open(source, options)?.model;
    model.ok_or_else(|| Error::internal("detector", "a directory has no model"))
}

fn open(source: &Source<'_>, options: &LoadOptions) -> Result<DetectSource> {
    let document = source.config()?;
    let fields = document.fields()?;
    if source.is_open_clip() || fields.has("architecture") {
        let reason = "is of a model that detects no objects; models of transformers of the types rt_detr and rt_detr_v2 do, and ONNX files";
        return Err(Error::config(&document.file, reason));
    }
    let mut config = config::read(fields)?;
    if options.trained_detector {
        training::prepare(&mut config, fields)?;
    }
    let preprocess = preprocessing::transformers(source, fields, options.image_size)?;
    let (height, width) = preprocess.output_size();
    if let Some([rows, columns]) = config.image.filter(|&size| size != [height, width]) {
        let reason = format_args!("is {rows}×{columns}, but images are resized to {height}×{width}");
        return Err(fields.error("anchor_image_size", reason));
    }
    check_size(source, &config, [height, width], options)?;
    let tokens = config.levels([height, width]).into_iter().flatten();
    let tokens: usize = tokens.map(|[rows, columns]| rows * columns).sum();
    if config.decoder.queries > tokens {
        let queries = config.decoder.queries;
        let reason =
            format_args!("is {queries}, but the maps of an image of {height}×{width} have {tokens} pixels");
        return Err(fields.error("num_queries", reason));
    }
    let mut weights = source.weights(fields)?;
    let name = source.name();
    let graph = graph(&name, &config, &preprocess, options, &mut weights)?;
    check_flops(&document.file, &graph, options)?;
    let copies = DETECTOR_COPIES.map(|prefix| format!("{prefix}*"));
    for (pattern, reason) in [
        ("model.decoder.class_embed.*", OTHER_LAYERS),
        (&copies[0], COPY),
        (&copies[1], COPY),
        ("model.denoising_class_embed.*", TRAINING),
        ("*num_batches_tracked", COUNTER),
    ] {
        weights.ignore(pattern, reason);
    }
    let adapter = weights.adapter.take();
    let parameters = weights.parameters();
    let ignored = weights.finish()?;
    let labels = hugging_face::labels(fields, config.decoder.classes)?;
    let info = Info {
        ignored,
        adapter,
        ..info(&config, [height, width], parameters)
    };
    let model = Model {
        name,
        graph,
        preprocess: preprocess.clone(),
        labels: labels.clone(),
        scores: Scores::Sigmoid,
        info,
        text: None,
        packing: None,
    };
    Ok(DetectSource {
        preprocess,
        input: None,
        scoring: BoxScoring::Sigmoid { most: None },
        labels: Box::new(move |_| Ok(labels.clone())),
        model: Some(model),
    })
}

/// Checks that the encoder can fuse the maps of images of this height and width.
fn check_size(source: &Source<'_>, config: &Config, size: [usize; 2], options: &LoadOptions) -> Result<()> {
    if config.levels(size).is_some() {
        return Ok(());
    }
    let [height, width] = size;
    let reason = format!(
        "{height}×{width} pixels make maps that are not half as large as the one before. Use multiples of 32"
    );
    if options.image_size.is_some() {
        return Err(Error::argument("image size", reason));
    }
    match source.preprocessor()? {
        Some(document) => Err(Error::config(&document.file, format!("`size`: {reason}"))),
        None => Err(source.no_preprocessor()),
    }
}

/// Builds the graph from the [input](LoadOptions::input) that the options name.
fn graph(
    name: &str,
    config: &Config,
    preprocess: &Preprocess,
    options: &LoadOptions,
    weights: &mut Weights,
) -> Result<Graph> {
    let (height, width) = preprocess.output_size();
    let are_values = options.input == InputKind::PixelValues;
    let shape = if are_values {
        [1, 3, height, width]
    } else {
        [1, height, width, 3]
    };
    let graph = Graph::of_values(name, "pixel_values", shape, DType::F32)?;
    let mut layers = Layers { graph, weights };
    let mut pixels = layers.graph.input();
    if are_values {
        pixels = layers.push(Role::Patch, "pixels", Permute::to_channels_last(4), [pixels])?;
    }
    let maps = backbone::backbone(&mut layers, &config.backbone, pixels)?;
    let maps = encoder::encoder(&mut layers, &config.encoder, &config.backbone, maps)?;
    decoder::decoder(&mut layers, config, &maps)?;
    if are_values {
        return Ok(layers.graph);
    }
    Ok(layers
        .graph
        .with_pixels(preprocessing::normalize(preprocess), true)?)
}

/// Returns the facts about the model.
fn info(config: &Config, image: [usize; 2], parameters: u64) -> Info {
    let decoder = &config.decoder;
    Info {
        library: Library::Transformers,
        family: Family::RtDetr,
        architecture: config.class.to_owned(),
        image_size: image,
        patch: [1; 2],
        tokens: decoder.queries,
        any_aspect_ratio: false,
        prefix_tokens: 0,
        depth: decoder.depth,
        dim: decoder.dim,
        heads: decoder.heads,
        merged_grid: None,
        classes: decoder.classes,
        parameters,
        interpolated: None,
        ignored: Vec::new(),
        text: None,
        adapter: None,
        quantization: None,
        sparsity: None,
        depth_map: None,
        onnx: None,
    }
}
