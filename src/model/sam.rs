//! Loads SAM, which segments images by points and boxes (<https://arxiv.org/abs/2304.02643>), as transformers stores it.
//!
//! A model is two graphs: the [encoder] runs once for an image, the [decoder] for each prompt. The tokens of a prompt are made on the host
//! ([prompts]).

mod config;
mod decoder;
mod encoder;
mod layers;
mod outputs;
mod processor;
mod prompts;
mod training;
mod unused;

use std::path::Path;

use self::config::Config;
pub(crate) use self::outputs::{EMBEDDING, TOKENS};
pub use self::outputs::{MASKS, SCORES};
pub(crate) use self::prompts::{PromptEncoder, PromptPoint};
pub use self::training::{PromptRow, mask_inputs};
use super::document::Document;
use super::info::{Family, Info, Library};
use super::loaded::Model;
use super::model_bytes::ModelBytes;
use super::onnx::{check_flops, is_onnx};
use super::options::LoadOptions;
use super::source::Source;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::image::{Preprocess, RgbImage};
use crate::labels::Labels;
use crate::outputs::Scores;

const MASK_PROMPTS: &str = "prompts are points and boxes, not masks";
const SINGLE_MASK: &str = "the mask for prompts without ambiguity is not an output";

/// A model with both graphs, and what prepares images and prompts for it.
#[derive(Debug)]
pub(crate) struct SamSource {
    pub(crate) encoder: Model,
    /// Takes prompts of one token. See [`Self::decoder_of`].
    decoder: Model,
    pub(crate) prompts: PromptEncoder,
    /// Rule for square images.
    preprocess: Preprocess,
    /// Side of the encoder's images in pixels.
    pub(crate) side: usize,
    /// Number of channels of a token.
    pub(crate) dim: usize,
    /// Number of masks of a prompt.
    pub(crate) masks: usize,
    /// Rows, or columns, of a predicted mask.
    pub(crate) mask_side: usize,
}

impl SamSource {
    /// Returns the mask decoder for prompts of this many tokens, those of the outputs included.
    pub(crate) fn decoder_of(&self, tokens: usize) -> Result<Model> {
        let mut model = self.decoder.clone();
        model.graph = model.graph.with_tokens(tokens)?;
        Ok(model)
    }

    /// Returns height and width of an image of this size after the resize, before the padding.
    pub(crate) fn resized(&self, size: [usize; 2]) -> [usize; 2] {
        processor::resized(size, self.side)
    }

    /// Checks that an image can be resized.
    pub(crate) fn check(&self, image: &RgbImage) -> Result<()> {
        let size = self.resized([image.height, image.width]);
        Ok(processor::exact(&self.preprocess, size)?.check(image)?)
    }

    /// Returns an image in the model's size, padded with black pixels at the bottom and at the right.
    pub(crate) fn padded(&self, image: &RgbImage) -> Result<RgbImage> {
        let side = self.side;
        let size = self.resized([image.height, image.width]);
        let resized = processor::exact(&self.preprocess, size)?.apply(image)?;
        let mut data = vec![0; 3 * side * side];
        for (to, from) in data
            .chunks_exact_mut(3 * side)
            .zip(resized.data.chunks_exact(3 * size[1]))
        {
            to[..from.len()].copy_from_slice(from);
        }
        Ok(RgbImage {
            width: side,
            height: side,
            data,
        })
    }

    /// Returns the pixel values of an image, `[3, side, side]`, padded with zeros at the bottom and at the right.
    pub(crate) fn pixel_values(&self, image: &RgbImage) -> Result<Vec<f32>> {
        let side = self.side;
        let size = self.resized([image.height, image.width]);
        let rule = processor::exact(&self.preprocess, size)?;
        let resized = rule.apply(image)?;
        let mut values = vec![0.0; resized.data.len()];
        rule.normalize(&resized.data, &mut values)?;
        let mut padded = vec![0.0; 3 * side * side];
        let planes = padded.chunks_exact_mut(side * side);
        for (to, from) in planes.zip(values.chunks_exact(size[0] * size[1])) {
            for (to, from) in to.chunks_exact_mut(side).zip(from.chunks_exact(size[1])) {
                to[..from.len()].copy_from_slice(from);
            }
        }
        Ok(padded)
    }
}

/// Checks that the configuration is of SAM, for errors of commands that cannot run it.
pub(super) fn is_sam(config: super::fields::Fields<'_>) -> bool {
    config::check_class(config).is_ok()
}

/// Loads the model at `path`, a directory or a name on the hub.
///
/// # Errors
///
/// - [`Error::Config`] for a model of another type, or whose configuration is not supported.
/// - [`Error::Argument`] for an option that SAM does not have.
/// - The errors of [`load`](super::load()) about files.
pub(crate) fn sam_source(path: &Path, options: &LoadOptions) -> Result<SamSource> {
    if is_onnx(path) {
        let reason = format!(
            "{} is an ONNX file, but SAM loads from a directory of transformers, such as facebook/sam-vit-base",
            path.display()
        );
        return Err(Error::argument("model", reason));
    }
    options.check_supported(&[], "SAM, which segments images of its own size")?;
    let source = Source::open(path)?;
    let document = source.config()?;
    if source.is_open_clip() {
        let reason =
            "is of a model of open_clip, which does not segment; models of transformers of the type sam do";
        return Err(Error::config(&document.file, reason));
    }
    let mut weights = source.weights(document.fields()?)?;
    assemble(&source, &document, options, &mut weights)
}

/// Loads the model of files in memory.
///
/// # Errors
///
/// The errors of [`sam_source`] about files.
pub(super) fn of_bytes(bytes: ModelBytes<'_>, options: &LoadOptions) -> Result<SamSource> {
    let source = Source::Bytes(bytes);
    let document = source.config()?;
    let mut weights = source.weights(document.fields()?)?;
    assemble(&source, &document, options, &mut weights)
}

/// Requests the tensors of the model from a [recording](Weights::recording) store, also those that only other uses of the model need.
pub(super) fn record(source: &Source<'_>, document: &Document, weights: &mut Weights) -> Result<()> {
    assemble(source, document, &LoadOptions::default(), weights)?;
    let config = config::read(document.fields()?)?;
    unused::record(&config, weights)
}

/// Builds the graphs from the configuration and `weights`.
fn assemble(
    source: &Source<'_>,
    document: &Document,
    options: &LoadOptions,
    weights: &mut Weights,
) -> Result<SamSource> {
    let config = config::read(document.fields()?)?;
    let preprocess = match source.preprocessor()? {
        Some(document) => processor::read(&document, config.vision.image)?,
        None => return Err(source.no_preprocessor()),
    };
    let name = source.name();
    let encoder = encoder::encoder(&name, &config.vision, weights)?;
    check_flops(&document.file, &encoder, options)?;
    let parameters = weights.parameters();
    let prompts = PromptEncoder::load(&config, weights)?;
    let decoder = decoder::decoder(&name, &config, &prompts.frequencies, weights)?;
    weights.ignore("prompt_encoder.mask_embed.*", MASK_PROMPTS);
    weights.ignore("mask_decoder.output_hypernetworks_mlps.0.*", SINGLE_MASK);
    let adapter = weights.adapter.take();
    let all = weights.parameters();
    let ignored = weights.finish()?;
    let mut info = info(&config, parameters);
    let of_decoder = Info {
        parameters: all - parameters,
        ..info.clone()
    };
    (info.ignored, info.adapter) = (ignored, adapter);
    let model = |graph: Graph, info: Info| Model {
        name: name.clone(),
        graph,
        preprocess: preprocess.clone(),
        labels: Labels::default(),
        scores: Scores::Sigmoid,
        info,
        text: None,
        packing: None,
    };
    Ok(SamSource {
        encoder: model(encoder, info),
        decoder: model(decoder, of_decoder),
        prompts,
        side: config.vision.image,
        dim: config.decoder.dim,
        masks: config.decoder.masks,
        mask_side: 4 * config.vision.grid(),
        preprocess,
    })
}

/// Returns the facts about the encoder.
fn info(config: &Config, parameters: u64) -> Info {
    let vision = &config.vision;
    Info {
        library: Library::Transformers,
        family: Family::Sam,
        architecture: config::CLASS.to_owned(),
        image_size: [vision.image; 2],
        patch: [vision.patch; 2],
        tokens: vision.grid() * vision.grid(),
        any_aspect_ratio: false,
        prefix_tokens: 0,
        depth: vision.depth,
        dim: vision.dim,
        heads: vision.heads,
        merged_grid: None,
        classes: 0,
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
