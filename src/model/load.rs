//! Loads a model: reads its configuration by the rules of its library, and builds its graph.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bf16_layers::Bf16Layers;
use super::builder::Blueprint;
use super::depth::DepthHead;
use super::depth_source::DepthSource;
use super::description::Description;
use super::detect_source::DetectSource;
use super::document::Document;
use super::info::{DepthMapInfo, Info};
use super::loaded::Model;
use super::model_bytes::ModelBytes;
use super::onnx::check_flops;
use super::options::{InputKind, LoadOptions, MAX_FLOPS};
use super::packed_layout::Layout;
use super::source::Source;
use super::text::TextTower;
use super::vit::{self, Vit};
use super::weights::Weights;
use super::{builder, compressed_tensors, hugging_face, onnx, open_clip, preprocessing, rt_detr, sam, timm};
use crate::error::{Error, Result};
use crate::graph::{Graph, Role, ValueId};
use crate::image::{Preprocess, Tiling};
use crate::ops::{Normalize, Op, PatchExtract, PixelLayout, Reshape};
use crate::outputs::Scores;
use crate::tensor::DType;

/// Loads the model at `path`.
///
/// `path` is one of these, in this order:
///
/// 1. an `.onnx` file
/// 2. a directory with `config.json` and weights, or a `.safetensors` file in the directory of its `config.json`
/// 3. the name of a model of the Hugging Face hub in its local cache
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
/// - [`Error::Onnx`] for an ONNX file that is invalid or has operators that are not supported
/// - [`Error::Argument`] for an image size that is out of range
pub fn load(path: &Path, options: &LoadOptions) -> Result<Model> {
    if onnx::is_onnx(path) {
        return onnx::load(path, options);
    }
    assemble(&Source::open(path)?, options)
}

/// Returns the directory of the model that [`load`] would load, or the path of an ONNX file. For a model of the hub, the directory is in the local cache.
///
/// # Errors
///
/// Returns the errors of [`load`] for a model that does not exist.
pub fn directory(path: &Path) -> Result<PathBuf> {
    if onnx::is_onnx(path) {
        return Ok(path.to_owned());
    }
    match Source::open(path)? {
        Source::Directory { path, .. } => Ok(path),
        Source::Bytes(_) => Ok(path.to_owned()),
    }
}

/// Returns the rule by which the processor of the model at `path` divides images into tiles.
///
/// # Errors
///
/// Returns [`Error::Config`](crate::Error::Config) for a processor that does not divide images, or one that is not supported, and the errors of [`load`] for a model
/// that does not exist.
pub fn tiling(path: &Path) -> Result<Tiling> {
    let source = Source::open(path)?;
    let document = source.preprocessor()?;
    let document = document.ok_or_else(|| source.no_preprocessor())?;
    Ok(Tiling::from_hf(&document.file, &document.value, None)?)
}

/// Loads a model from the contents of its files.
///
/// # Errors
///
/// Returns the errors of [`load`].
pub fn from_bytes(files: ModelBytes<'_>, options: &LoadOptions) -> Result<Model> {
    assemble(&Source::Bytes(files), options)
}

/// Loads the small model that is embedded in the crate. It classifies handwritten digits of 32×32 pixels.
///
/// # Errors
///
/// Returns the errors of [`load`]. With the default options there are none.
pub fn tinyvit32(options: &LoadOptions) -> Result<Model> {
    from_bytes(embedded(), options)
}

/// Returns the name and shape of each tensor that the configuration requires, without weights. Dual encoders require those of both towers.
///
/// `config` is the content of `config.json`, and `preprocessor` that of `preprocessor_config.json`. Errors name the
/// files below `place`.
///
/// # Errors
///
/// Returns the errors of [`load`] about the configuration.
pub fn tensor_shapes(
    place: &str,
    config: &[u8],
    preprocessor: Option<&[u8]>,
) -> Result<BTreeMap<String, Vec<usize>>> {
    let no_weights: &'static [u8] = &[];
    let source = Source::Bytes(ModelBytes {
        name: place,
        config,
        weights: Arc::new(no_weights),
        preprocessor,
    });
    let config = source.config()?;
    let mut weights = Weights::recording(source.directory());
    if sam::is_sam(config.fields()?) {
        sam::record(&source, &config, &mut weights)?;
        return Ok(weights.outline());
    }
    check_supported(&source, &config)?;
    assemble_from(&source, &config, &LoadOptions::default(), &mut weights)?;
    Ok(weights.outline())
}

/// Returns the files of the embedded model.
pub(super) fn embedded() -> ModelBytes<'static> {
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
    if options.input == InputKind::Tensors || !options.extents.is_empty() || options.image_rule.is_some() {
        let reason = "tensors, extents and image rules are options of ONNX models only";
        return Err(Error::argument("input", reason));
    }
    if options.trained_detector {
        return rt_detr::trained(source, options);
    }
    let config = source.config()?;
    // Check this before files are reported missing. Downloading files does not help if the model is not supported.
    check_supported(source, &config)?;
    let mut weights = source.weights(config.fields()?)?;
    weights.scheme = compressed_tensors::scheme(config.fields()?)?;
    weights.bf16_layers = Bf16Layers::new(config.fields()?)?;
    weights.unpack()?;
    assemble_from(source, &config, options, &mut weights)
}

/// Builds the model from its configuration and `weights`.
fn assemble_from(
    source: &Source<'_>,
    config: &Document,
    options: &LoadOptions,
    weights: &mut Weights,
) -> Result<Model> {
    let (mut description, mut preprocess) = describe(source, config, options, weights)?;
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
    if description.depth.is_some()
        && let Some(option) = [
            (options.packed.is_some(), "packed"),
            (options.tokens, "tokens"),
            (!options.hidden_layers.is_empty(), "hidden layers"),
        ]
        .into_iter()
        .find_map(|(given, option)| given.then_some(option))
    {
        let reason = format!("is not an option of {}, which estimates depth", source.name());
        return Err(Error::argument(option, reason));
    }
    if let Some(patches) = options.packed {
        if options.tokens || options.embedded_tokens || !options.hidden_layers.is_empty() {
            let reason = "tokens and hidden layers of packed images are not returned";
            return Err(Error::argument("packed", reason));
        }
        preprocess = Layout::apply(patches, &mut description.vit, preprocess)
            .map_err(|reason| Error::argument("packed", format!("{}: {reason}", source.name())))?;
    }

    let vit = &description.vit;
    let [height, width] = vit.packed().map_or(vit.image, |layout| layout.size());
    if vit.is_flexible() && options.input == InputKind::PixelValues {
        let reason = format!(
            "{} takes images of any aspect ratio, which come as pixels with their grid of patches, not as pixel values",
            source.name()
        );
        return Err(Error::argument("input", reason));
    }
    let (mut graph, pixels) = match options.input {
        InputKind::PixelValues => {
            let mut graph = Graph::new(source.name(), [1, 3, height, width], DType::F32);
            let pixels = if vit.has_overlapping_patches() {
                channels_last_pixels(&mut graph, [height, width], PixelLayout::Chw, None)?
            } else {
                graph.input()
            };
            (graph, pixels)
        }
        InputKind::Pixels | InputKind::Tensors => {
            let mut graph = Graph::new(source.name(), [1, height, width, 3], DType::U8);
            let normalize = preprocessing::normalize(&preprocess);
            let pixels = if vit.has_overlapping_patches() {
                channels_last_pixels(&mut graph, [height, width], PixelLayout::Hwc, Some(normalize))?
            } else {
                let input = graph.input();
                graph.push(Role::Patch, "normalize", Op::Normalize(normalize), [input])?
            };
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
    let blueprint = Blueprint {
        vit,
        depth: description.depth.as_ref(),
        names: description.names,
        prefix,
    };
    let built = builder::build(&mut graph, pixels, blueprint, options, weights)?;
    if description.depth.is_some() {
        // Convolutions of large maps cost more than the encoder.
        check_flops(&config.file, &graph, options)?;
    }
    let parameters = weights.parameters();
    let text = match description.text {
        Some(spec) => Some(TextTower::load(source, spec, weights)?),
        None => None,
    };
    let text_parameters = weights.parameters() - parameters;
    for (pattern, reason) in &description.ignored {
        weights.ignore(pattern, reason);
    }
    let (quantization, sparsity) = (weights.quantization(), weights.sparsity());
    let adapter = weights.adapter.take();
    let ignored = weights.finish()?;
    let [rows, columns] = vit.last_grid();
    let sigmoid = description.multi_label || vit.classes == 1;
    let depth_map = description.depth.as_ref().map(|head| depth_map(head, &graph));
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
            merged_grid: vit.hierarchy.is_some().then_some([rows, columns]),
            classes: vit.classes,
            parameters,
            interpolated: built.interpolated,
            ignored,
            text: text.as_ref().map(|text| text.info(text_parameters)),
            adapter,
            quantization,
            sparsity,
            depth_map,
            onnx: None,
        },
        text,
        packing: built.packing.map(Arc::new),
    })
}

/// Adds the pixels with their channels last, `[1,H,W,3]`, which a convolution reads. They are patches of one pixel.
fn channels_last_pixels(
    graph: &mut Graph,
    [height, width]: [usize; 2],
    layout: PixelLayout,
    normalize: Option<Normalize>,
) -> Result<ValueId> {
    let patches = PatchExtract {
        patch: [1, 1],
        layout,
        normalize,
    };
    let image = Reshape {
        extents: vec![1, height, width, 3],
        batch: Some(0),
    };
    let input = graph.input();
    let rows = graph.push(Role::Patch, "pixels.rows", patches, [input])?;
    Ok(graph.push(Role::Patch, "pixels", image, [rows])?)
}

/// Describes the depths that a graph returns.
fn depth_map(head: &DepthHead, graph: &Graph) -> DepthMapInfo {
    let shapes = graph
        .outputs()
        .iter()
        .map(|&(_, value)| graph.value(value).shape.as_slice());
    let size = shapes
        .filter_map(|shape| match *shape {
            [1, height, width] => Some([height, width]),
            _ => None,
        })
        .next();
    DepthMapInfo {
        size: size.unwrap_or_default(),
        is_metric: head.is_metric(),
    }
}

/// Reads how images are prepared and boxes are scored for the ONNX file or the directory at `path`. Loads the model of a directory.
///
/// # Errors
///
/// Returns [`Error::Argument`] for an ONNX file that takes no images, or whose type is not supported, and the errors of [`load`] for a
/// directory.
pub(crate) fn detect_source(path: &Path, options: &LoadOptions) -> Result<DetectSource> {
    if onnx::is_onnx(path) {
        return onnx::detect_source(path, options);
    }
    rt_detr::detect_source(path, options)
}

/// Reads how images are prepared for the model at `path`, which must estimate depth. An ONNX file must have one input of images.
///
/// # Errors
///
/// Returns the errors of [`load`] about the configuration, and [`Error::Config`] for a model of another task.
pub(crate) fn depth_source(path: &Path, options: &LoadOptions) -> Result<DepthSource> {
    if onnx::is_onnx(path) {
        return onnx::depth_source(path, options);
    }
    let source = Source::open(path)?;
    let config = source.config()?;
    if source.is_open_clip() || config.fields()?.has("architecture") {
        let reason = "is of a model that estimates no depth; models of transformers of the types depth_anything and dpt do";
        return Err(Error::config(&config.file, reason));
    }
    hugging_face::check_estimates_depth(config.fields()?)?;
    Ok(DepthSource {
        preprocess: preprocessing::transformers(&source, config.fields()?, options.image_size)?,
        input: None,
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
        (false, true) if sam::is_sam(config) => {
            let reason =
                "is \"sam\", which segments images by points and boxes: use `hipvit segment` or Segmenter";
            Err(config.error("model_type", reason))
        }
        (false, true) if rt_detr::is_rt_detr(config) => {
            let model_type = config.text("model_type")?.unwrap_or_default();
            let reason =
                format_args!("is \"{model_type}\", which detects objects: use `hipvit detect` or Detector");
            Err(config.error("model_type", reason))
        }
        (false, true) => hugging_face::check_class(config),
        (false, false) => {
            let reason = "has neither timm's `architecture` nor transformers' `model_type`";
            Err(Error::config(config.file(), reason))
        }
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
    let check = |vit: &Vit| vit.check().map_err(|reason| Error::config(fields.file(), reason));
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
