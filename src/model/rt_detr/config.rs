//! Reads the configuration of transformers' `RTDetrForObjectDetection` and `RTDetrV2ForObjectDetection`.

use serde_json::Value;

use super::layers::Norms;
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::hugging_face;
use crate::ops::{Activation, DeformableAttention, PointSampling};

/// Values of `model_type`, each with that of `architectures`.
const CLASSES: [(&str, &str); 2] = [
    ("rt_detr", "RTDetrForObjectDetection"),
    ("rt_detr_v2", "RTDetrV2ForObjectDetection"),
];
/// Value of `model_type` of the backbone.
const BACKBONE: &str = "rt_detr_resnet";

/// Sizes of a model.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// Name of the class.
    pub(super) class: &'static str,
    pub(super) backbone: Backbone,
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
    /// Height and width of the images, if the configuration fixes them.
    pub(super) image: Option<[usize; 2]>,
    /// True for the graph that training differentiates: with the boxes of all layers, and without norms folded into convolutions.
    pub(super) trains: bool,
}

/// Sizes of the backbone, ResNet-vd.
#[derive(Clone, Debug)]
pub(super) struct Backbone {
    /// Channels after the stem.
    pub(super) embedding: usize,
    pub(super) stages: Vec<Stage>,
    /// True for residual layers of three convolutions, false for two.
    pub(super) is_bottleneck: bool,
    pub(super) activation: Activation,
    /// True if the first convolution of a bottleneck has the stride, instead of the second one.
    pub(super) strides_first: bool,
    /// Maps that the encoder reads, in order. 0 is the stem.
    pub(super) outputs: Vec<usize>,
    pub(super) norms: Norms,
}

/// Residual layers of the same size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    pub(super) channels: usize,
    pub(super) depth: usize,
    /// Stride of the first layer.
    pub(super) stride: usize,
}

impl Config {
    /// Returns rows and columns of each of the decoder's levels for images of this height and width. `None` if a map is not exactly half of
    /// the one before it.
    pub(super) fn levels(&self, image: [usize; 2]) -> Option<Vec<[usize; 2]>> {
        let halved = |size: [usize; 2]| size.map(|extent| extent.div_ceil(2));
        let mut size = halved(halved(image));
        let mut maps = vec![size];
        for stage in &self.backbone.stages {
            if stage.stride == 2 {
                size = halved(size);
            }
            maps.push(size);
        }
        let read = self.backbone.outputs.iter().map(|&index| maps[index]);
        let mut levels: Vec<[usize; 2]> = read.collect();
        let fits = |pair: &[[usize; 2]]| pair[1].map(|extent| 2 * extent) == pair[0];
        if !levels.windows(2).all(fits) {
            return None;
        }
        let further = levels.last().map(|&last| halved(last))?;
        levels.resize(self.decoder.levels, further);
        Some(levels)
    }
}

impl Backbone {
    /// Returns the channels of each map that the encoder reads.
    pub(super) fn channels(&self) -> Vec<usize> {
        let of = |&index: &usize| match index.checked_sub(1) {
            Some(stage) => self.stages[stage].channels,
            None => self.embedding,
        };
        self.outputs.iter().map(of).collect()
    }
}

/// Sizes of the hybrid encoder.
#[derive(Clone, Debug)]
pub(super) struct Encoder {
    pub(super) dim: usize,
    pub(super) hidden: usize,
    pub(super) depth: usize,
    pub(super) heads: usize,
    /// Maps whose pixels attend to each other.
    pub(super) attended: Vec<usize>,
    pub(super) temperature: f64,
    /// True if attention has positions.
    pub(super) positions: bool,
    pub(super) norm_first: bool,
    /// Activation of the feed-forward networks.
    pub(super) activation: Activation,
    /// Activation of the convolutions.
    pub(super) conv_activation: Activation,
    /// Channels of the blocks that fuse maps.
    pub(super) expanded: usize,
    pub(super) norm_epsilon: f32,
    pub(super) batch_norm_epsilon: f64,
    pub(super) norms: Norms,
}

/// Sizes of the decoder.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    pub(super) dim: usize,
    pub(super) hidden: usize,
    pub(super) depth: usize,
    pub(super) heads: usize,
    pub(super) queries: usize,
    pub(super) classes: usize,
    pub(super) levels: usize,
    /// Sampled points of a level.
    pub(super) points: usize,
    /// Factor of the offsets of points, times the number of points.
    pub(super) offset_scale: f64,
    pub(super) sampling: PointSampling,
    pub(super) activation: Activation,
    pub(super) norm_epsilon: f32,
}

/// Checks that the configuration is of RT-DETR. Returns the name of the class.
pub(super) fn check_class(config: Fields<'_>) -> Result<&'static str> {
    let model_type = config.text("model_type")?.unwrap_or_default();
    let Some((_, class)) = CLASSES.into_iter().find(|(known, _)| *known == model_type) else {
        let reason = format_args!(
            "is \"{model_type}\"; directories of detectors load for \"rt_detr\" and \"rt_detr_v2\". Export another detector to ONNX"
        );
        return Err(config.error("model_type", reason));
    };
    hugging_face::check_architecture(config, class)?;
    Ok(class)
}

/// Reads the sizes. Missing keys have the library's defaults.
pub(super) fn read(config: Fields<'_>) -> Result<Config> {
    let class = check_class(config)?;
    let is_v2 = class == CLASSES[1].1;
    for key in ["quantization_config", "compression_config", "per_layer_config"] {
        if config.get(key).is_some() {
            return Err(config.error(key, "is not supported for RT-DETR"));
        }
    }
    for key in ["backbone", "use_timm_backbone", "use_pretrained_backbone"] {
        if !matches!(config.get(key), None | Some(Value::Bool(false))) {
            return Err(config.error(
                key,
                "is not supported: the backbone is described by `backbone_config`",
            ));
        }
    }
    let config = config.refusing_null();
    let backbone = backbone(config)?;
    let encoder = encoder(config, &backbone)?;
    let decoder = decoder(config, &encoder, &backbone, is_v2)?;
    let image = config.accepting_null().extent("anchor_image_size")?;
    Ok(Config {
        class,
        backbone,
        encoder,
        decoder,
        image,
        trains: false,
    })
}

fn backbone(config: Fields<'_>) -> Result<Backbone> {
    let default_outputs = config.get("backbone_config").is_none();
    let fields = config.object_or_empty("backbone_config")?;
    match fields.text("model_type")? {
        None if default_outputs => {}
        Some(BACKBONE) => {}
        found => {
            let found = found.unwrap_or_default();
            let reason = format_args!("is \"{found}\"; \"{BACKBONE}\" is supported");
            return Err(fields.error("model_type", reason));
        }
    }
    match fields.size("num_channels")?.unwrap_or(3) {
        3 => {}
        other => return Err(fields.error("num_channels", format_args!("is {other}, but images have 3"))),
    }
    let channels = fields.sizes("hidden_sizes")?;
    let channels = channels.unwrap_or_else(|| vec![256, 512, 1024, 2048]);
    let depths = fields.sizes("depths")?.unwrap_or_else(|| vec![3, 4, 6, 3]);
    if depths.len() != channels.len() {
        let reason = format_args!(
            "has {} stages, but `hidden_sizes` has {}",
            depths.len(),
            channels.len()
        );
        return Err(fields.error("depths", reason));
    }
    let is_bottleneck = match fields.text("layer_type")?.unwrap_or("bottleneck") {
        "bottleneck" => true,
        "basic" => false,
        other => {
            return Err(fields.error(
                "layer_type",
                format_args!("is \"{other}\", which is not supported"),
            ));
        }
    };
    if is_bottleneck && let Some(channels) = channels.iter().find(|channels| !channels.is_multiple_of(4)) {
        let reason = format_args!("has {channels}, which is no multiple of 4");
        return Err(fields.error("hidden_sizes", reason));
    }
    let embedding = fields.size("embedding_size")?.unwrap_or(64);
    if !embedding.is_multiple_of(2) {
        return Err(fields.error("embedding_size", format_args!("is {embedding}, which is odd")));
    }
    let strides_at_once = fields.flag("downsample_in_first_stage")?.unwrap_or(false);
    let stage = |(index, (&channels, &depth)): (usize, (&usize, &usize))| Stage {
        channels,
        depth,
        stride: if index > 0 || strides_at_once { 2 } else { 1 },
    };
    let stages: Vec<Stage> = channels.iter().zip(&depths).enumerate().map(stage).collect();
    if !is_bottleneck && !strides_at_once && channels.first() != Some(&embedding) {
        let reason = "differs from the first of `hidden_sizes`: the shortcut of a basic layer then has a stride that the layer lacks";
        return Err(fields.error("embedding_size", reason));
    }
    let outputs = if default_outputs {
        vec![2, 3, 4]
    } else {
        outputs(fields, stages.len())?
    };
    Ok(Backbone {
        embedding,
        stages,
        is_bottleneck,
        activation: hugging_face::activation(fields, "hidden_act", Activation::Relu)?,
        strides_first: fields.flag("downsample_in_bottleneck")?.unwrap_or(false),
        outputs,
        norms: Norms::Folded,
    })
}

/// Reads the maps that the encoder gets.
fn outputs(fields: Fields<'_>, stages: usize) -> Result<Vec<usize>> {
    let (key, outputs) = match fields.get("out_features") {
        Some(Value::Array(names)) => {
            let index = |name: &Value| match name.as_str()? {
                "stem" => Some(0),
                name => name
                    .strip_prefix("stage")?
                    .parse()
                    .ok()
                    .filter(|&stage: &usize| stage > 0),
            };
            (
                "out_features",
                names.iter().map(index).collect::<Option<Vec<usize>>>(),
            )
        }
        Some(_) => ("out_features", None),
        None => {
            let indices = fields.accepting_null().counts("out_indices")?;
            ("out_indices", Some(indices.unwrap_or_else(|| vec![stages])))
        }
    };
    match outputs {
        Some(outputs)
            if !outputs.is_empty()
                && outputs.is_sorted_by(|a, b| a < b)
                && outputs.iter().all(|&at| at <= stages) =>
        {
            Ok(outputs)
        }
        _ => Err(fields.error(
            key,
            format_args!("does not name some of the stem and {stages} stages, in order"),
        )),
    }
}

fn encoder(config: Fields<'_>, backbone: &Backbone) -> Result<Encoder> {
    let maps = backbone.outputs.len();
    let inputs = config.sizes("encoder_in_channels")?;
    let inputs = inputs.unwrap_or_else(|| vec![512, 1024, 2048]);
    if inputs.len() != maps {
        let reason = format_args!("has {} maps, but the backbone has {maps}", inputs.len());
        return Err(config.error("encoder_in_channels", reason));
    }
    let dim = config.size("encoder_hidden_dim")?.unwrap_or(256);
    let heads = config.size("encoder_attention_heads")?.unwrap_or(8);
    check_heads(config, "encoder_attention_heads", heads, dim)?;
    let attended = config.counts("encode_proj_layers")?.unwrap_or_else(|| vec![2]);
    if let Some(map) = attended.iter().find(|&&map| map >= maps) {
        let reason = format_args!("has {map}, but there are {maps} maps, counted from 0");
        return Err(config.error("encode_proj_layers", reason));
    }
    let positions = config.accepting_null().extent("eval_size")?.is_none();
    if positions && !dim.is_multiple_of(4) {
        let reason = format_args!("is {dim}, which is no multiple of 4, as positions need it");
        return Err(config.error("encoder_hidden_dim", reason));
    }
    let expansion = config.ratio("hidden_expansion")?.unwrap_or(1.0);
    let expanded = (dim as f64 * expansion) as usize;
    if expanded == 0 {
        return Err(config.error("hidden_expansion", "leaves no channels"));
    }
    Ok(Encoder {
        dim,
        hidden: config.size("encoder_ffn_dim")?.unwrap_or(1024),
        depth: config.count("encoder_layers")?.unwrap_or(1),
        heads,
        attended,
        temperature: config.size("positional_encoding_temperature")?.unwrap_or(10_000) as f64,
        positions,
        norm_first: config.flag("normalize_before")?.unwrap_or(false),
        activation: hugging_face::activation(config, "encoder_activation_function", Activation::GeluErf)?,
        conv_activation: hugging_face::activation(config, "activation_function", Activation::Silu)?,
        expanded,
        norm_epsilon: epsilon(config, "layer_norm_eps")? as f32,
        batch_norm_epsilon: epsilon(config, "batch_norm_eps")?,
        norms: Norms::Folded,
    })
}

fn decoder(config: Fields<'_>, encoder: &Encoder, backbone: &Backbone, is_v2: bool) -> Result<Decoder> {
    let maps = backbone.outputs.len();
    let inputs = config
        .sizes("decoder_in_channels")?
        .unwrap_or_else(|| vec![256; 3]);
    if inputs.len() != maps || inputs.iter().any(|&channels| channels != encoder.dim) {
        let reason = format_args!(
            "is {inputs:?}, but the encoder makes {maps} maps of {} channels",
            encoder.dim
        );
        return Err(config.error("decoder_in_channels", reason));
    }
    let levels = config.size("num_feature_levels")?.unwrap_or(3);
    if !(maps..=DeformableAttention::MAX_LEVELS).contains(&levels) {
        let most = DeformableAttention::MAX_LEVELS;
        let reason = format_args!("is {levels}, expected {maps} to {most}");
        return Err(config.error("num_feature_levels", reason));
    }
    if config.flag("learn_initial_query")?.unwrap_or(false) {
        // The embedding has no method `tile`.
        let reason = "is true, which is not supported: transformers 5.24 does not run such models";
        return Err(config.error("learn_initial_query", reason));
    }
    let dim = config.size("d_model")?.unwrap_or(256);
    let heads = config.size("decoder_attention_heads")?.unwrap_or(8);
    check_heads(config, "decoder_attention_heads", heads, dim)?;
    let (mut offset_scale, mut sampling) = (0.5, PointSampling::Linear);
    if is_v2 {
        let attended = config.size("decoder_n_levels")?.unwrap_or(3);
        if attended != levels {
            let reason = format_args!("is {attended}, but `num_feature_levels` is {levels}");
            return Err(config.error("decoder_n_levels", reason));
        }
        offset_scale = config.number("decoder_offset_scale")?.unwrap_or(0.5);
        sampling = match config.text("decoder_method")?.unwrap_or("default") {
            "default" => PointSampling::Linear,
            "discrete" => PointSampling::Discrete,
            other => {
                let reason = format_args!("is \"{other}\", expected \"default\" or \"discrete\"");
                return Err(config.error("decoder_method", reason));
            }
        };
    }
    Ok(Decoder {
        dim,
        hidden: config.size("decoder_ffn_dim")?.unwrap_or(1024),
        depth: config.size("decoder_layers")?.unwrap_or(6),
        heads,
        queries: config.size("num_queries")?.unwrap_or(300),
        classes: hugging_face::classes(config.accepting_null())?,
        levels,
        points: config.size("decoder_n_points")?.unwrap_or(4),
        offset_scale,
        sampling,
        activation: hugging_face::activation(config, "decoder_activation_function", Activation::Relu)?,
        norm_epsilon: epsilon(config, "layer_norm_eps")? as f32,
    })
}

fn check_heads(config: Fields<'_>, key: &str, heads: usize, dim: usize) -> Result<()> {
    if dim.is_multiple_of(heads) {
        return Ok(());
    }
    Err(config.error(
        key,
        format_args!("is {heads}, which does not divide {dim} channels"),
    ))
}

fn epsilon(config: Fields<'_>, key: &str) -> Result<f64> {
    let epsilon = config.number(key)?.unwrap_or(1e-5);
    if epsilon > 0.0 && epsilon < 1.0 {
        Ok(epsilon)
    } else {
        Err(config.error(
            key,
            format_args!("is {epsilon}, expected a number between 0 and 1"),
        ))
    }
}
