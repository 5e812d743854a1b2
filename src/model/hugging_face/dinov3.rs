//! Reads transformers' `dinov3_vit`: DINOv2's blocks with registers, and rotary position embedding in place of the
//! table.

use super::keys::activation;
use super::kind::Kind;
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::names::{self, Names};
use crate::model::norm::{Norm, NormKind};
use crate::model::rotary::{Angles, Coordinates, Rotary};
use crate::model::vit::{Blocks, Mlp, Neck, Pooling, Vit};
use crate::model::weights::Weights;
use crate::ops::{Activation, RopePairs};

/// Describes the trunk for images of the given size.
pub(super) fn trunk(kind: &Kind, config: Fields<'_>, image: [usize; 2]) -> Result<Vit> {
    let activation = activation(config, "hidden_act", kind.activation)?;
    let gated = config.flag("use_gated_mlp")?.unwrap_or(false);
    if gated && activation != Activation::Silu {
        let reason = format_args!(
            "is {}; with `use_gated_mlp` only silu is supported",
            activation.name()
        );
        return Err(config.error("hidden_act", reason));
    }
    let mut qkv_bias = [true, false, true];
    for (bias, key) in qkv_bias.iter_mut().zip(["query_bias", "key_bias", "value_bias"]) {
        *bias = config.flag(key)?.unwrap_or(*bias);
    }
    Ok(Vit {
        image,
        patch: config.extent("patch_size")?.unwrap_or([kind.patch; 2]),
        patch_filter: None,
        dim: config.size("hidden_size")?.unwrap_or(384),
        depth: config.count("num_hidden_layers")?.unwrap_or(12),
        heads: config.size("num_attention_heads")?.unwrap_or(6),
        kv_heads: None,
        hidden: config.size("intermediate_size")?.unwrap_or(1536),
        mlp: if gated {
            Mlp::SwiGlu
        } else {
            Mlp::Plain(activation)
        },
        norms: Norm {
            kind: NormKind::Layer,
            epsilon: config.number("layer_norm_eps")?.unwrap_or(kind.epsilon),
        },
        patch_norm: None,
        blocks: Blocks::default(),
        patch_bias: true,
        class_token: true,
        distillation_token: false,
        registers: config.count("num_register_tokens")?.unwrap_or(0),
        positions: None,
        rotary: Some(Rotary {
            pairs: RopePairs::Halves,
            angles: Angles::Axial {
                coordinates: Coordinates::Centres { offset: 0.0 },
                temperature: config.number("rope_theta")?.unwrap_or(100.0),
            },
            columns_first: false,
        }),
        hierarchy: None,
        relative: None,
        pre_norm: false,
        qkv_bias,
        projection_bias: config.flag("proj_bias")?.unwrap_or(true),
        mlp_bias: config.flag("mlp_bias")?.unwrap_or(true),
        layer_scale: [true; 2],
        norm: true,
        pooling: Pooling::Class,
        pooled_norm: false,
        neck: Neck::None,
        classes: 0,
    })
}

/// Returns the names of the tensors, which depend on the release that wrote them.
pub(super) fn names(weights: &Weights) -> &'static Names {
    let nested = &names::DINOV3_NESTED;
    match weights.shape(&format!("{}0.{}.weight", nested.blocks, nested.norm1)) {
        Some(_) => nested,
        None => &names::DINOV3,
    }
}
