//! Reads the configuration of transformers' `SamModel`.

use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::hugging_face;
use crate::ops::Activation;

/// Value of `model_type`.
const MODEL_TYPE: &str = "sam";
/// Value of `architectures`.
pub(super) const CLASS: &str = "SamModel";

/// Channels per factor by which cross-attention narrows in the layers of the decoder. transformers ignores the configuration there.
const CROSS_DOWNSAMPLE: usize = 2;

/// Sizes of a model.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) vision: Vision,
    pub(super) decoder: Decoder,
    /// Side of the image that coordinates of prompts refer to.
    pub(super) prompt_size: usize,
    /// Number of sines of a position. It has as many cosines.
    pub(super) frequencies: usize,
    /// Channels of masks as prompts.
    pub(super) mask_channels: usize,
}

/// Sizes of the image encoder.
#[derive(Clone, Debug)]
pub(super) struct Vision {
    pub(super) dim: usize,
    pub(super) hidden: usize,
    pub(super) depth: usize,
    pub(super) heads: usize,
    /// Side of the image in pixels.
    pub(super) image: usize,
    pub(super) patch: usize,
    pub(super) activation: Activation,
    pub(super) epsilon: f32,
    pub(super) qkv_bias: bool,
    pub(super) absolute: bool,
    pub(super) relative: bool,
    /// Side of the windows in patches. 0 for none.
    pub(super) window: usize,
    /// Blocks that attend to the whole image.
    pub(super) global: Vec<usize>,
    /// Channels of the embedding.
    pub(super) output: usize,
}

/// Sizes of the mask decoder.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    pub(super) dim: usize,
    pub(super) hidden: usize,
    pub(super) depth: usize,
    pub(super) heads: usize,
    pub(super) activation: Activation,
    pub(super) epsilon: f32,
    /// Channels of the final attention.
    pub(super) final_channels: usize,
    /// Number of masks of a prompt.
    pub(super) masks: usize,
    pub(super) iou_depth: usize,
    pub(super) iou_hidden: usize,
}

impl Vision {
    /// Returns the rows, or columns, of patches.
    pub(super) fn grid(&self) -> usize {
        self.image / self.patch
    }

    /// Returns the side of the windows of a block, or of the grid if the block attends to all of it.
    pub(super) fn window_of(&self, block: usize) -> usize {
        if self.window == 0 || self.global.contains(&block) {
            self.grid()
        } else {
            self.window
        }
    }
}

impl Decoder {
    /// Returns the channels of attention between tokens and the image in the layers.
    pub(super) fn cross_channels(&self) -> usize {
        self.dim / CROSS_DOWNSAMPLE
    }
}

/// Checks that the configuration is of a model that segments images by prompts.
pub(super) fn check_class(config: Fields<'_>) -> Result<()> {
    let model_type = config.text("model_type")?.unwrap_or_default();
    if model_type != MODEL_TYPE {
        let reason = format_args!(
            "is \"{model_type}\"; of models that segment by points and boxes, \"sam\" is supported"
        );
        return Err(config.error("model_type", reason));
    }
    hugging_face::check_architecture(config, CLASS)
}

/// Reads the sizes. Missing keys have the library's defaults.
pub(super) fn read(config: Fields<'_>) -> Result<Config> {
    check_class(config)?;
    for key in ["quantization_config", "compression_config", "per_layer_config"] {
        if config.get(key).is_some() {
            return Err(config.error(key, "is not supported for SAM"));
        }
    }
    let vision_fields = config.object_or_empty("vision_config")?.refusing_null();
    let prompt = config.object_or_empty("prompt_encoder_config")?.refusing_null();
    let decoder_fields = config.object_or_empty("mask_decoder_config")?.refusing_null();
    let vision = vision(vision_fields)?;
    let decoder = decoder(decoder_fields)?;
    let frequencies = vision_fields.size("num_pos_feats")?.unwrap_or(128);
    for (fields, key, found) in [
        (vision_fields, "output_channels", vision.output),
        (prompt, "hidden_size", prompt.size("hidden_size")?.unwrap_or(256)),
        (vision_fields, "num_pos_feats", 2 * frequencies),
    ] {
        if found != decoder.dim {
            let reason = format_args!(
                "makes {found} channels, but `mask_decoder_config.hidden_size` is {}",
                decoder.dim
            );
            return Err(fields.error(key, reason));
        }
    }
    let prompt_size = prompt.size("image_size")?.unwrap_or(1024);
    let grid = prompt_size / prompt.size("patch_size")?.unwrap_or(16);
    if grid != vision.grid() {
        let reason = format_args!(
            "makes {grid} rows of patches, but the vision encoder has {}",
            vision.grid()
        );
        return Err(prompt.error("image_size", reason));
    }
    match prompt.size("num_point_embeddings")?.unwrap_or(4) {
        4 => {}
        other => {
            let reason = format_args!(
                "is {other}, but there are points inside and outside, and two corners of a box: expected 4"
            );
            return Err(prompt.error("num_point_embeddings", reason));
        }
    }
    Ok(Config {
        vision,
        decoder,
        prompt_size,
        frequencies,
        mask_channels: prompt.size("mask_input_channels")?.unwrap_or(16),
    })
}

fn vision(fields: Fields<'_>) -> Result<Vision> {
    match fields.size("num_channels")?.unwrap_or(3) {
        3 => {}
        other => return Err(fields.error("num_channels", format_args!("is {other}, but images have 3"))),
    }
    let dim = fields.size("hidden_size")?.unwrap_or(768);
    let heads = fields.size("num_attention_heads")?.unwrap_or(12);
    check_heads(fields, dim, heads)?;
    let ratio = fields.ratio("mlp_ratio")?.unwrap_or(4.0);
    let hidden = match fields.accepting_null().size("mlp_dim")? {
        Some(hidden) => hidden,
        None => match (dim as f64 * ratio) as usize {
            0 => return Err(fields.error("mlp_ratio", "leaves no channels")),
            hidden => hidden,
        },
    };
    let image = fields.size("image_size")?.unwrap_or(1024);
    let patch = fields.size("patch_size")?.unwrap_or(16);
    if !image.is_multiple_of(patch) {
        let reason = format_args!("is {image}, which is no multiple of the `patch_size` {patch}");
        return Err(fields.error("image_size", reason));
    }
    Ok(Vision {
        dim,
        hidden,
        depth: fields.count("num_hidden_layers")?.unwrap_or(12),
        heads,
        image,
        patch,
        activation: hugging_face::activation(fields, "hidden_act", Activation::GeluErf)?,
        epsilon: epsilon(fields)?,
        qkv_bias: fields.flag("qkv_bias")?.unwrap_or(true),
        absolute: fields.flag("use_abs_pos")?.unwrap_or(true),
        relative: fields.flag("use_rel_pos")?.unwrap_or(true),
        window: fields.count("window_size")?.unwrap_or(14),
        global: fields
            .counts("global_attn_indexes")?
            .unwrap_or_else(|| vec![2, 5, 8, 11]),
        output: fields.size("output_channels")?.unwrap_or(256),
    })
}

fn decoder(fields: Fields<'_>) -> Result<Decoder> {
    let dim = fields.size("hidden_size")?.unwrap_or(256);
    let heads = fields.size("num_attention_heads")?.unwrap_or(8);
    if !dim.is_multiple_of(8) {
        let reason = format_args!("is {dim}, which is no multiple of 8: the masks' channels are an eighth");
        return Err(fields.error("hidden_size", reason));
    }
    let downsample = fields.size("attention_downsample_rate")?.unwrap_or(2);
    let decoder = Decoder {
        dim,
        hidden: fields.size("mlp_dim")?.unwrap_or(2048),
        depth: fields.count("num_hidden_layers")?.unwrap_or(2),
        heads,
        activation: hugging_face::activation(fields, "hidden_act", Activation::Relu)?,
        epsilon: epsilon(fields)?,
        final_channels: dim / downsample,
        masks: fields.size("num_multimask_outputs")?.unwrap_or(3),
        iou_depth: fields.size("iou_head_depth")?.unwrap_or(3),
        iou_hidden: fields.size("iou_head_hidden_dim")?.unwrap_or(256),
    };
    for channels in [dim, decoder.cross_channels(), decoder.final_channels] {
        check_heads(fields, channels, heads)?;
    }
    if decoder.iou_depth < 2 {
        return Err(fields.error(
            "iou_head_depth",
            "is 1, but the head has an input and an output layer",
        ));
    }
    Ok(decoder)
}

fn check_heads(fields: Fields<'_>, channels: usize, heads: usize) -> Result<()> {
    if channels > 0 && channels.is_multiple_of(heads) {
        return Ok(());
    }
    let reason = format_args!("is {heads}, among which {channels} channels do not divide");
    Err(fields.error("num_attention_heads", reason))
}

fn epsilon(fields: Fields<'_>) -> Result<f32> {
    let epsilon = fields.number("layer_norm_eps")?.unwrap_or(1e-6);
    if epsilon > 0.0 {
        Ok(epsilon as f32)
    } else {
        Err(fields.error(
            "layer_norm_eps",
            format_args!("is {epsilon}, expected a positive number"),
        ))
    }
}
