//! Loads a model directory of timm, transformers or open_clip: its computation graph, its labels and its preprocessing.
//! `Session::load` uses it.
//!
//! - `source` finds the files, and `hub` finds models of the Hugging Face hub in its local cache.
//! - `weights` holds the tensors.
//! - `timm` and `hugging_face` read the configuration into one description (`vit`), with the library's tensor names
//!   (`names`).
//! - `builder` makes the graph from description and tensors.
//!
//! [`crate::image`] prepares the pixels, and [`crate::graph`] optimises the graph.

mod adapter;
mod bf16_layers;
mod builder;
mod checkpoint;
mod compressed_tensors;
mod fields;
mod hub;
mod hugging_face;
mod mapped;
mod names;
mod open_clip;
mod patches;
mod positions;
mod preprocessing;
mod relative;
mod renames;
mod rotary;
mod source;
// Without the feature, a text tower is loaded but not run, so that each of its tensors is accounted for.
#[cfg_attr(not(feature = "text"), allow(dead_code))]
mod text;
mod timm;
mod vit;
mod weights;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::graph::{Graph, Role};
use crate::image::Preprocess;
use crate::labels::Labels;
use crate::nearest::nearest;
use crate::ops::Op;
use crate::outputs::Scores;
use crate::tensor::{Bytes, DType};

use bf16_layers::Bf16Layers;
pub use checkpoint::{Checkpoint, Format, Replacement};
pub use compressed_tensors::{Quantization, Sparsity};
#[cfg(feature = "hub")]
pub use hub::download::{PullProgress, Pulled, pull};
use source::{Document, Source};
pub use text::TextInfo;
pub use text::TextTower;
#[cfg(feature = "text")]
pub use text::{Tokenizer, Tokens};
pub use weights::Ignored;
use weights::Weights;

/// A loaded model: everything that does not depend on an image.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Model {
    /// Name of the model: its repository on the hub, otherwise its directory.
    pub name: String,
    /// Computation as the library performs it, step by step. [`crate::graph::optimize`] makes it fast.
    pub graph: Graph,
    /// Preprocessing that converts an image to the graph's input.
    pub preprocess: Preprocess,
    /// Names of the classes. Empty for a model without a classifier.
    pub labels: Labels,
    /// Function that converts logits to probabilities.
    pub scores: Scores,
    /// Facts that `hipvit inspect` shows.
    pub info: Info,
    /// Text tower of a dual encoder.
    #[doc(hidden)]
    pub text: Option<TextTower>,
}

/// Facts about a model.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Info {
    /// Library that wrote the files.
    pub library: Library,
    /// Family of the model.
    pub family: Family,
    /// Architecture name in timm, or class in transformers.
    pub architecture: String,
    /// Height and width of the image, in pixels.
    pub image_size: [usize; 2],
    /// Height and width of a patch, in pixels.
    pub patch: [usize; 2],
    /// Number of tokens: class, distillation, registers and patches. If images may have any aspect ratio, the number
    /// for the largest image.
    pub tokens: usize,
    /// True if images may have any aspect ratio.
    ///
    /// Then [`image_size`](Self::image_size) is the size of the packed bytes that
    /// [`Preprocess::apply`](crate::image::Preprocess::apply) returns.
    /// [`Preprocess::patch_grid`](crate::image::Preprocess::patch_grid) returns the patches of an image.
    pub any_aspect_ratio: bool,
    /// Number of tokens before the patches.
    pub prefix_tokens: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Number of channels.
    pub dim: usize,
    /// Number of attention heads. 0 for a model without attention.
    pub heads: usize,
    /// Number of logits. 0 without a classifier.
    pub classes: usize,
    /// Number of parameters in use.
    pub parameters: u64,
    /// Stored grid of patches and grid of the image, if position embeddings were interpolated.
    pub interpolated: Option<([usize; 2], [usize; 2])>,
    /// Tensors of the weight file that are not used.
    pub ignored: Vec<Ignored>,
    /// Text tower of a model that compares images with texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextInfo>,
    /// Description of the adapter that was merged into the weights, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Quantisation of the weights, if they are quantised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<Quantization>,
    /// Packed 2:4 sparse weights, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sparsity: Option<Sparsity>,
}

/// Libraries whose model directories can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// PyTorch Image Models.
    Timm,
    /// Hugging Face transformers.
    Transformers,
    /// open_clip.
    #[serde(rename = "open_clip")]
    OpenClip,
}

/// Families of Vision Transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// ViT, <https://arxiv.org/abs/2010.11929>.
    Vit,
    /// DeiT, distilled or not, <https://arxiv.org/abs/2012.12877>; DeiT III, <https://arxiv.org/abs/2204.07118>.
    Deit,
    /// DINOv2, <https://arxiv.org/abs/2304.07193>, with or without registers, <https://arxiv.org/abs/2309.16588>.
    Dinov2,
    /// DINOv3, <https://arxiv.org/abs/2508.10104>.
    Dinov3,
    /// EVA, <https://arxiv.org/abs/2211.07636>, and EVA-02, <https://arxiv.org/abs/2303.11331>.
    Eva,
    /// BEiT, <https://arxiv.org/abs/2106.08254>, and BEiT v2, <https://arxiv.org/abs/2208.06366>.
    Beit,
    /// Vision tower of AIMv2, <https://arxiv.org/abs/2411.14402>.
    Aimv2,
    /// CLIP, <https://arxiv.org/abs/2103.00020>.
    Clip,
    /// SigLIP, <https://arxiv.org/abs/2303.15343>, and SigLIP 2, <https://arxiv.org/abs/2502.14786>, with or without
    /// NaFlex.
    Siglip,
    /// MLP-Mixer, <https://arxiv.org/abs/2105.01601>, ResMLP, <https://arxiv.org/abs/2105.03404>, and gMLP,
    /// <https://arxiv.org/abs/2105.08050>. They have no attention; linear layers mix the tokens.
    Mixer,
}

impl Info {
    /// Returns true if the model has attention.
    pub fn has_attention(&self) -> bool {
        self.heads > 0
    }

    /// Returns the rows and columns of patches, or `None` if each image has its own grid.
    pub fn patch_grid(&self) -> Option<[usize; 2]> {
        let grid = [0, 1].map(|axis| self.image_size[axis] / self.patch[axis].max(1));
        (!self.any_aspect_ratio).then_some(grid)
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Timm => "timm",
            Self::Transformers => "transformers",
            Self::OpenClip => "open_clip",
        })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vit => "ViT",
            Self::Deit => "DeiT",
            Self::Dinov2 => "DINOv2",
            Self::Dinov3 => "DINOv3",
            Self::Eva => "EVA",
            Self::Beit => "BEiT",
            Self::Aimv2 => "AIMv2",
            Self::Clip => "CLIP",
            Self::Siglip => "SigLIP",
            Self::Mixer => "MLP-Mixer",
        })
    }
}

/// Formats a few lines: the model's name and family, its sizes, and the tensors that are not used.
impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            image_size: [height, width],
            patch: [patch_height, patch_width],
            ..
        } = self;
        writeln!(f, "{} ({}, {})", self.architecture, self.family, self.library)?;
        let heads = if self.has_attention() {
            format!("{} heads", self.heads)
        } else {
            "no attention".to_owned()
        };
        let image = if self.any_aspect_ratio {
            "images of any aspect ratio".to_owned()
        } else {
            format!("image {height}×{width}")
        };
        writeln!(
            f,
            "{image}, patch {patch_height}×{patch_width}, {} tokens, depth {}, {} channels, {heads}, \
             {} classes, {} parameters",
            self.tokens, self.depth, self.dim, self.classes, self.parameters
        )?;
        if let Some(([rows, columns], [new_rows, new_columns])) = self.interpolated {
            writeln!(
                f,
                "position embeddings interpolated from {rows}×{columns} to {new_rows}×{new_columns}"
            )?;
        }
        if let Some(text) = &self.text {
            writeln!(f, "{text}")?;
        }
        if let Some(adapter) = &self.adapter {
            writeln!(f, "{adapter}")?;
        }
        if let Some(quantization) = &self.quantization {
            writeln!(f, "quantised, {quantization}")?;
        }
        if let Some(sparsity) = &self.sparsity {
            writeln!(f, "sparse, {sparsity}")?;
        }
        for ignored in &self.ignored {
            writeln!(f, "ignored: {} ({})", ignored.tensor, ignored.reason)?;
        }
        Ok(())
    }
}

/// Options of [`load`].
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Height and width of the images, if they differ from the model's. Position embeddings are interpolated.
    pub image_size: Option<[usize; 2]>,
    /// Input of the graph.
    pub input: InputKind,
    /// If true, the tokens before the first block are an output,
    /// [`OutputKind::EmbeddedTokens`](crate::graph::OutputKind::EmbeddedTokens).
    pub embedded_tokens: bool,
    /// If true, all tokens after the final norm are an output.
    pub tokens: bool,
    /// Blocks, counted from 0, after which all tokens are an output.
    pub hidden_layers: Vec<usize>,
    /// Maximum number of floating-point operations per image, if not [`MAX_FLOPS`].
    pub max_flops: Option<u64>,
}

/// Default limit of floating-point operations per image, several times what the largest supported models take at their
/// own image size.
///
/// Without a limit, a wrong size in a configuration could take hours and all memory.
#[doc(hidden)]
pub const MAX_FLOPS: u64 = 10_000_000_000_000;

/// Contents of a model's files.
#[doc(hidden)]
pub struct ModelBytes<'a> {
    /// Name of the model, used in messages in place of its directory.
    pub name: &'a str,
    /// Content of `config.json`.
    pub config: &'a [u8],
    /// Content of `model.safetensors`.
    pub weights: Arc<dyn Bytes>,
    /// Content of `preprocessor_config.json` or `processor_config.json`. Required for models of transformers.
    pub preprocessor: Option<&'a [u8]>,
}

impl fmt::Debug for ModelBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelBytes")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Input of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputKind {
    /// Resized and cropped images, u8 `[B,H,W,3]`. The graph normalises them.
    #[default]
    Pixels,
    /// Normalised images, f32 `[B,3,H,W]`, as the libraries' processors return them.
    PixelValues,
}

/// Result of reading a configuration.
struct Description {
    library: Library,
    family: Family,
    architecture: String,
    vit: vit::Vit,
    /// Text tower of a dual encoder, if it is present.
    text: Option<text::TextSpec>,
    names: &'static names::Names,
    /// Possible prefixes of the trunk's tensor names. The first that occurs is used.
    prefixes: &'static [&'static str],
    /// Patterns of tensors that are allowed but not used, with the reason.
    ignored: Vec<(&'static str, &'static str)>,
    labels: Labels,
    /// True if an image may belong to several classes at once.
    multi_label: bool,
}

/// Loads the model at `path`.
///
/// `path` is one of these, in this order:
///
/// 1. a directory with `config.json` and weights, or a `.safetensors` file in the directory of its `config.json`
/// 2. the name of a model of the Hugging Face hub in its local cache
///
/// The weights are mapped, not read. The files must not be changed in place while the model is in use.
///
/// # Errors
///
/// Errors name the file or tensor at fault and the cause.
///
/// - [`Error::Io`] for a file that cannot be read
/// - [`Error::Hub`] for a model that the cache lacks or has only in part, with the command that downloads it
/// - [`Error::Config`] for a configuration that is invalid or not supported
/// - [`Error::Weights`] and [`Error::Tensor`] for weights that are damaged or do not match the configuration
/// - [`Error::Argument`] for an image size that is out of range
#[doc(hidden)]
pub fn load(path: &Path, options: &LoadOptions) -> Result<Model> {
    assemble(&Source::open(path)?, options)
}

/// Returns the directory of the model that [`load`] would load. For a model of the hub it is in the local cache.
///
/// # Errors
///
/// Returns the errors of [`load`] for a model that does not exist.
#[doc(hidden)]
pub fn directory(path: &Path) -> Result<PathBuf> {
    match Source::open(path)? {
        Source::Directory { path, .. } => Ok(path),
        Source::Bytes(_) => Ok(path.to_owned()),
    }
}

/// Loads a model from the contents of its files.
///
/// # Errors
///
/// Returns the errors of [`load`].
#[doc(hidden)]
pub fn from_bytes(files: ModelBytes<'_>, options: &LoadOptions) -> Result<Model> {
    assemble(&Source::Bytes(files), options)
}

/// Loads the small model that is embedded in the crate. It classifies handwritten digits of 32×32 pixels.
///
/// # Errors
///
/// Returns the errors of [`load`]. With the default options there are none.
#[doc(hidden)]
pub fn tinyvit32(options: &LoadOptions) -> Result<Model> {
    from_bytes(embedded(), options)
}

/// Returns the files of the embedded model.
fn embedded() -> ModelBytes<'static> {
    let weights: &'static [u8] = include_bytes!("../../assets/tinyvit32/model.safetensors");
    ModelBytes {
        name: "tinyvit32",
        config: include_bytes!("../../assets/tinyvit32/config.json"),
        weights: Arc::new(weights),
        preprocessor: None,
    }
}

fn assemble(source: &Source<'_>, options: &LoadOptions) -> Result<Model> {
    if let Some([height, width]) = options.image_size
        && ![height, width]
            .iter()
            .all(|side| (1..=vit::LARGEST_SIDE).contains(side))
    {
        let reason = format!(
            "{height}×{width} is not between 1 and {} pixels",
            vit::LARGEST_SIDE
        );
        return Err(Error::argument("image size", reason));
    }
    let config = source.config()?;
    // Check this before files are reported missing. Downloading files does not help if the model is not supported.
    check_supported(source, &config)?;
    let mut weights = source.weights(config.fields()?)?;
    weights.scheme = compressed_tensors::scheme(config.fields()?)?;
    weights.bf16_layers = Bf16Layers::new(config.fields()?)?;
    weights.unpack()?;
    let (description, preprocess) = describe(source, &config, options, &weights)?;
    let vit = &description.vit;
    let (flops, limit) = (vit.flops(), options.max_flops.unwrap_or(MAX_FLOPS));
    if flops > limit {
        let [height, width] = vit.image;
        let reason = format!(
            "an image of {height}×{width} takes {:.1e} floating-point operations, more than the limit of {:.1e}; \
             SessionBuilder::max_flops or --max-flops raises it",
            flops as f64, limit as f64
        );
        return Err(Error::config(&config.file, reason));
    }
    if let Some(block) = options.hidden_layers.iter().find(|&&block| block >= vit.depth) {
        let reason = format!(
            "block {block} is not one of the model's {}, counted from 0",
            vit.depth
        );
        return Err(Error::argument("hidden layers", reason));
    }

    let [height, width] = vit.image;
    if vit.is_flexible() && options.input == InputKind::PixelValues {
        let reason = format!(
            "{} takes images of any aspect ratio, which come as pixels with their grid of patches, not as pixel values",
            source.name()
        );
        return Err(Error::argument("input", reason));
    }
    let (mut graph, pixels) = match options.input {
        InputKind::PixelValues => {
            let graph = Graph::new(source.name(), [1, 3, height, width], DType::F32);
            let pixels = graph.input();
            (graph, pixels)
        }
        InputKind::Pixels => {
            let mut graph = Graph::new(source.name(), [1, height, width, 3], DType::U8);
            let op = Op::Normalize(preprocessing::normalize(&preprocess));
            let input = graph.input();
            let pixels = graph.push(Role::Patch, "normalize", op, [input])?;
            (graph, pixels)
        }
    };
    let found = |prefix: &&&str| {
        weights
            .shape(&format!("{prefix}{}.weight", description.names.patch))
            .is_some()
    };
    let prefix = description
        .prefixes
        .iter()
        .find(found)
        .unwrap_or(&description.prefixes[0]);
    let names = description.names;
    let interpolated = builder::build(&mut graph, pixels, vit, names, prefix, options, &mut weights)?;
    let parameters = weights.parameters();
    let text = match description.text {
        Some(spec) => Some(TextTower::load(source, spec, &mut weights)?),
        None => None,
    };
    let text_parameters = weights.parameters() - parameters;
    for (pattern, reason) in &description.ignored {
        weights.ignore(pattern, reason);
    }
    let (quantization, sparsity) = (weights.quantization(), weights.sparsity());
    let adapter = weights.adapter.take();
    let ignored = weights.finish()?;
    let [rows, columns] = vit.grid();
    let sigmoid = description.multi_label || vit.classes == 1;
    Ok(Model {
        name: source.name(),
        graph,
        preprocess,
        scores: if sigmoid { Scores::Sigmoid } else { Scores::Softmax },
        labels: description.labels,
        info: Info {
            library: description.library,
            family: description.family,
            architecture: description.architecture,
            image_size: vit.image,
            patch: vit.patch,
            tokens: vit.prefix() + rows * columns,
            any_aspect_ratio: vit.is_flexible(),
            prefix_tokens: vit.prefix(),
            depth: vit.depth,
            dim: vit.dim,
            heads: vit.heads,
            classes: vit.classes,
            parameters,
            interpolated,
            ignored,
            text: text.as_ref().map(|text| text.info(text_parameters)),
            adapter,
            quantization,
            sparsity,
        },
        text,
    })
}

/// Checks that the model is supported, as far as the name in the configuration tells.
fn check_supported(source: &Source<'_>, config: &Document) -> Result<()> {
    if source.is_open_clip() {
        return open_clip::check(config.fields()?).map_err(|error| source.not_open_clip(&error));
    }
    let config = config.fields()?;
    match (config.has("architecture"), config.has("model_type")) {
        (true, _) => timm::check_architecture(config),
        (false, true) => hugging_face::check_class(config),
        (false, false) => {
            let reason = "has neither timm's `architecture` nor transformers' `model_type`";
            Err(Error::config(config.file(), reason))
        }
    }
}

/// Returns an error text with the supported names that resemble `name`.
fn near(name: &str, supported: impl IntoIterator<Item = String>) -> String {
    let near = nearest(name, supported.into_iter().map(|name| (name.clone(), name)));
    if near.is_empty() {
        String::new()
    } else {
        format!("; near it: {}", near.join(", "))
    }
}

/// Reads the configuration by the rules of the library that wrote it.
fn describe(
    source: &Source<'_>,
    config: &Document,
    options: &LoadOptions,
    weights: &Weights,
) -> Result<(Description, Preprocess)> {
    let fields = config.fields()?;
    let check = |vit: &vit::Vit| vit.check().map_err(|reason| Error::config(fields.file(), reason));
    if source.is_open_clip() {
        let described = open_clip::describe(fields, options.image_size, weights);
        let (description, preprocess) = described.map_err(|error| source.not_open_clip(&error))?;
        check(&description.vit)?;
        return Ok((description, preprocess));
    }
    if !fields.has("architecture") {
        let preprocess = preprocessing::transformers(source, fields, options.image_size)?;
        let (height, width) = preprocess.output_size();
        let description = hugging_face::describe(fields, [height, width], weights)?;
        check(&description.vit)?;
        return Ok((description, preprocess));
    }
    if timm::is_wrapped(fields)? {
        if preprocessing::has_processor(source)? {
            let preprocess = preprocessing::transformers(source, fields, options.image_size)?;
            let (height, width) = preprocess.output_size();
            let description = timm::describe(fields, Some([height, width]), weights)?;
            check(&description.vit)?;
            return Ok((description, preprocess));
        }
        if fields.get("pretrained_cfg").is_none() {
            let reason = "is missing, which says how images are prepared: transformers cannot make an image processor without it \
                              either. Add it, for example {\"input_size\": [3, 224, 224], \"mean\": [0.5, 0.5, 0.5], \"std\": [0.5, 0.5, 0.5], \
                              \"interpolation\": \"bicubic\", \"crop_pct\": 0.9}, with the values of training";
            return Err(fields.error("pretrained_cfg", reason));
        }
    }
    let description = timm::describe(fields, options.image_size, weights)?;
    check(&description.vit)?;
    let preprocess = preprocessing::timm(config, description.vit.image)?;
    Ok((description, preprocess))
}
