//! Reads transformers' `beit`: ViT's blocks with LayerScale, keys without a bias, and a bias of the scores by relative
//! position.

use super::keys::activation;
use super::kind::{Class, Kind};
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::norm::{Norm, NormKind};
use crate::model::positions::{Filter, Fitting};
use crate::model::relative::{RelativePositions, TableFitting};
use crate::model::vit::{Blocks, Mlp, Neck, Pooling, Positions, Vit};
use crate::model::weights::Weights;

/// Describes the trunk for images of the given size.
pub(super) fn trunk(
    kind: &Kind,
    class: Class,
    config: Fields<'_>,
    image: [usize; 2],
    weights: &Weights,
) -> Result<Vit> {
    let flag = |key| config.flag(key).map(|flag| flag.unwrap_or(false));
    let size = config.extent("image_size")?.unwrap_or([224, 224]);
    let patch = config.extent("patch_size")?.unwrap_or([kind.patch; 2]);
    let configured = [0, 1].map(|axis| size[axis] / patch[axis]);
    if configured.contains(&0) {
        return Err(config.error("patch_size", "is larger than `image_size`"));
    }
    let scale = config.number("layer_scale_init_value")?.unwrap_or(0.1) > 0.0;
    let mean = config.flag("use_mean_pooling")?.unwrap_or(true);
    let pooled_norm = |prefix: &&str| {
        let name = format!("{prefix}{}.weight", kind.names.pooled_norm);
        weights.shape(&name).is_some()
    };
    // A model may have been saved without its pooler. Its class token is then the embedding.
    let pools = class == Class::Classifier || kind.prefixes.iter().any(pooled_norm);
    let relative = RelativePositions {
        own: flag("use_relative_position_bias")?,
        shared: flag("use_shared_relative_position_bias")?,
        fitting: TableFitting::Transformers { configured },
    };
    Ok(Vit {
        image,
        patch,
        patch_filter: None,
        dim: config.size("hidden_size")?.unwrap_or(768),
        depth: config.count("num_hidden_layers")?.unwrap_or(12),
        heads: config.size("num_attention_heads")?.unwrap_or(12),
        kv_heads: None,
        hidden: config.size("intermediate_size")?.unwrap_or(3072),
        mlp: Mlp::Plain(activation(config, "hidden_act", kind.activation)?),
        norms: Norm {
            kind: NormKind::Layer,
            epsilon: config.number("layer_norm_eps")?.unwrap_or(kind.epsilon),
        },
        patch_norm: None,
        blocks: Blocks::default(),
        patch_bias: true,
        class_token: true,
        distillation_token: false,
        registers: 0,
        positions: flag("use_absolute_position_embeddings")?.then_some(Positions::Table {
            prefix: 1,
            fitting: Fitting::Transformers {
                configured,
                // The library fits the table to every image.
                keep: false,
                square_image: image[0] == image[1],
                filter: Filter::Cubic,
            },
        }),
        rotary: None,
        hierarchy: None,
        relative: (relative.own || relative.shared).then_some(relative),
        pre_norm: false,
        qkv_bias: [true, false, true],
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [scale; 2],
        norm: !mean,
        pooling: if mean && pools {
            Pooling::Mean { skip: 1 }
        } else {
            Pooling::Class
        },
        pooled_norm: mean && pools,
        neck: Neck::None,
        classes: 0,
    })
}
