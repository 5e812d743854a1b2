//! Reads transformers' `aimv2`: RMS norms, SwiGLU, a norm of the patches, pooling by a learned query, and learned or
//! computed positions. <https://arxiv.org/abs/2411.14402>

use super::keys::activation;
use super::kind::Kind;
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::norm::{Norm, NormKind};
use crate::model::positions::{Filter, Fitting};
use crate::model::vit::{Blocks, Mlp, Neck, Pooling, Positions, Vit};
use crate::ops::Activation;

/// Describes the trunk for images of the given size.
pub(super) fn trunk(kind: &Kind, config: Fields<'_>, image: [usize; 2]) -> Result<Vit> {
    let activation = activation(config, "hidden_act", kind.activation)?;
    if activation != Activation::Silu {
        let reason = format_args!("is {}; only silu is supported", activation.name());
        return Err(config.error("hidden_act", reason));
    }
    let configured = config.extent("image_size")?.unwrap_or([224, 224]);
    let patch = config.extent("patch_size")?.unwrap_or([kind.patch; 2]);
    let heads = config.size("num_attention_heads")?.unwrap_or(8);
    let qkv_bias = config.flag("qkv_bias")?.unwrap_or(false);
    let norms = Norm {
        kind: NormKind::Rms,
        epsilon: config.number("rms_norm_eps")?.unwrap_or(kind.epsilon),
    };
    let pooling = if config.flag("use_head")?.unwrap_or(true) {
        Pooling::Query {
            heads,
            bias: qkv_bias,
        }
    } else {
        // The library has no embedding for this case. timm pools the same checkpoints by the mean of the tokens.
        Pooling::Mean { skip: 0 }
    };
    Ok(Vit {
        image,
        patch,
        patch_filter: None,
        dim: config.size("hidden_size")?.unwrap_or(1024),
        depth: config.count("num_hidden_layers")?.unwrap_or(24),
        heads,
        kv_heads: None,
        hidden: config.size("intermediate_size")?.unwrap_or(2816),
        mlp: Mlp::SwiGlu,
        norms,
        patch_norm: Some(norms),
        blocks: Blocks::default(),
        patch_bias: true,
        class_token: false,
        distillation_token: false,
        registers: 0,
        positions: Some(if config.flag("is_native")?.unwrap_or(false) {
            Positions::Sinusoidal
        } else {
            Positions::Table {
                prefix: 0,
                fitting: Fitting::Transformers {
                    configured: [0, 1].map(|axis| configured[axis] / patch[axis]),
                    keep: image == configured,
                    square_image: image[0] == image[1],
                    filter: Filter::Cubic,
                },
            }
        }),
        rotary: None,
        hierarchy: None,
        relative: None,
        pre_norm: false,
        qkv_bias: [qkv_bias; 3],
        projection_bias: qkv_bias,
        mlp_bias: config.flag("mlp_bias")?.unwrap_or(false),
        layer_scale: [false; 2],
        norm: true,
        pooling,
        pooled_norm: false,
        neck: Neck::None,
        classes: 0,
    })
}
