//! The trunk that most families share.

use super::keys::activation;
use super::kind::{Class, Kind};
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::info::Family;
use crate::model::norm::{Norm, NormKind};
use crate::model::positions::{Filter, Fitting};
use crate::model::vit::{Blocks, Mlp, Neck, Pooling, Positions, Vit};

/// Pattern of tensors that are allowed but not used, with the reason.
pub(super) const MASK_TOKEN: (&str, &str) = ("*embeddings.mask_token", "the mask token is for pre-training");

/// Refuses images of other than three channels.
pub(super) fn check_channels(config: Fields<'_>) -> Result<()> {
    match config.count("num_channels")? {
        None | Some(3) => Ok(()),
        Some(channels) => Err(config.error(
            "num_channels",
            format_args!("is {channels}; only 3 are supported"),
        )),
    }
}

/// Reads the trunk of a family that needs nothing of its own, for images of the size `image`.
pub(super) fn trunk(kind: &Kind, class: Class, config: Fields<'_>, image: [usize; 2]) -> Result<Vit> {
    let (family, clip_like) = (kind.family, matches!(kind.family, Family::Clip | Family::Siglip));
    let sizes = match kind.model_type {
        // The library has no such key in these configurations.
        "siglip2" | "siglip2_vision_model" => config.accepting_null(),
        _ => config,
    };
    let default = match kind.model_type {
        "blip" | "dpt" => 384,
        _ => 224,
    };
    let configured = sizes.extent("image_size")?.unwrap_or([default; 2]);
    let patch = config.extent("patch_size")?.unwrap_or([kind.patch, kind.patch]);
    let dim = config.size("hidden_size")?.unwrap_or(768);
    let activation = activation(config, "hidden_act", kind.activation)?;
    let registers = match kind.model_type {
        "dinov2_with_registers" => config.count("num_register_tokens")?.unwrap_or(4),
        _ => 0,
    };
    let (mlp, hidden) = if family == Family::Dinov2 {
        let hidden = (dim as f64 * config.ratio("mlp_ratio")?.unwrap_or(4.0)) as usize;
        if config.flag("use_swiglu_ffn")?.unwrap_or(false) {
            // Two thirds, rounded up to a multiple of 8.
            (Mlp::SwiGluPacked, (hidden * 2 / 3).next_multiple_of(8))
        } else {
            (Mlp::Plain(activation), hidden)
        }
    } else {
        (
            Mlp::Plain(activation),
            config.size("intermediate_size")?.unwrap_or(3072),
        )
    };
    let heads = config.size("num_attention_heads")?.unwrap_or(12);
    let class_token = family != Family::Siglip;
    let distillation_token = family == Family::Deit;
    let pooling = match (family, class) {
        (_, Class::WithTeacher) => Pooling::ClassAndDistillation,
        (Family::Clip, Class::Classifier) => Pooling::Mean { skip: 1 },
        (Family::Siglip, Class::Classifier) => Pooling::Mean { skip: 0 },
        (Family::Dinov2, Class::Classifier) => Pooling::ClassAndMean,
        (Family::Siglip, _) if !config.flag("vision_use_head")?.unwrap_or(true) => {
            return Err(config.error(
                "vision_use_head",
                "is false, so the model makes no embedding of an image",
            ));
        }
        (Family::Siglip, _) => Pooling::Attention {
            skip: 0,
            heads,
            hidden,
            activation,
        },
        _ => Pooling::Class,
    };
    Ok(Vit {
        image,
        patch,
        patch_filter: None,
        dim,
        depth: config.count("num_hidden_layers")?.unwrap_or(12),
        heads,
        kv_heads: None,
        hidden,
        mlp,
        norms: Norm {
            kind: NormKind::Layer,
            epsilon: config.number("layer_norm_eps")?.unwrap_or(kind.epsilon),
        },
        patch_norm: None,
        blocks: Blocks::default(),
        patch_bias: family != Family::Clip,
        class_token,
        distillation_token,
        registers,
        positions: Some(Positions::Table {
            // The registers have no positions.
            prefix: usize::from(class_token) + usize::from(distillation_token),
            fitting: Fitting::Transformers {
                configured: [0, 1].map(|axis| configured[axis] / patch[axis]),
                // DINOv2 and DPT fit the table to every image, the others only on request.
                keep: family != Family::Dinov2 && image == configured,
                square_image: image[0] == image[1],
                filter: match kind.model_type {
                    "dinov2_with_registers" => Filter::CubicAntialiased,
                    "dpt" => Filter::Linear,
                    _ => Filter::Cubic,
                },
            },
        }),
        rotary: None,
        hierarchy: None,
        relative: None,
        pre_norm: family == Family::Clip,
        qkv_bias: [clip_like || config.flag("qkv_bias")?.unwrap_or(true); 3],
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [family == Family::Dinov2; 2],
        norm: family != Family::Clip,
        pooling,
        pooled_norm: family == Family::Clip && class != Class::Classifier,
        neck: Neck::None,
        classes: 0,
    })
}
