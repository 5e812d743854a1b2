//! Reads transformers' `swin`, `swinv2` and `donut-swin`.

use super::keys::activation;
use super::kind::Kind;
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::hierarchy::Hierarchy;
use crate::model::norm::{Norm, NormKind};
use crate::model::positions::{Filter, Fitting, Grid};
use crate::model::swin::{Stage, Swin, Version, grids};
use crate::model::vit::{BlockForm, Blocks, Mlp, Neck, Pooling, Positions, Vit};

/// Describes the trunk for images of the given size.
pub(super) fn trunk(kind: &Kind, config: Fields<'_>, image: Grid) -> Result<Vit> {
    let version = if kind.model_type == "swinv2" {
        Version::V2
    } else {
        Version::V1
    };
    let size = config.extent("image_size")?.unwrap_or([224, 224]);
    let patch = config.extent("patch_size")?.unwrap_or([kind.patch; 2]);
    let patches = |size: Grid| [0, 1].map(|axis| size[axis] / patch[axis]);
    let configured = patches(size);
    if configured.contains(&0) {
        return Err(config.error("patch_size", "is larger than `image_size`"));
    }
    if (0..2).any(|axis| !image[axis].is_multiple_of(patch[axis])) {
        let reason = format_args!(
            "is {}×{}, but images of {}×{} are no multiple of it; padding them is not supported",
            patch[0], patch[1], image[0], image[1]
        );
        return Err(config.error("patch_size", reason));
    }
    let depths = config.sizes("depths")?.unwrap_or_else(|| vec![2, 2, 6, 2]);
    let heads = config.sizes("num_heads")?.unwrap_or_else(|| vec![3, 6, 12, 24]);
    let trained = config
        .counts("pretrained_window_sizes")?
        .unwrap_or_else(|| vec![0; depths.len()]);
    if depths.len() > heads.len() || depths.len() > trained.len() || depths.is_empty() || depths.len() > 16 {
        let reason = "has another number of stages than `num_heads` or `pretrained_window_sizes`";
        return Err(config.error("depths", reason));
    }
    let embed_dim = config.size("embed_dim")?.unwrap_or(96);
    let ratio = config.ratio("mlp_ratio")?.unwrap_or(4.0);
    let window = config.size("window_size")?.unwrap_or(7);
    let mut stages: Vec<Stage> = Vec::with_capacity(depths.len());
    for (index, grid) in grids(patches(image), depths.len()).enumerate() {
        // Swin V2 chooses the windows by the configured size, Swin by that of the image.
        let reference = match version {
            Version::V1 => grid,
            Version::V2 => configured.map(|n| n >> index),
        };
        let smallest = match version {
            Version::V1 => reference[0].min(reference[1]),
            // The library looks at the rows alone.
            Version::V2 => reference[0],
        };
        if smallest < window && version == Version::V1 || smallest == 0 {
            let reason = format_args!(
                "is {window}, more than stage {index} has rows or columns for an image of {}×{}",
                image[0], image[1]
            );
            return Err(config.error("window_size", reason));
        }
        let shift = if smallest <= window { 0 } else { window / 2 };
        let dim = embed_dim << index;
        let mut stage = Stage {
            dim,
            depth: depths[index],
            heads: heads[index],
            hidden: (dim as f64 * ratio) as usize,
            grid,
            window: [window.min(smallest); 2],
            shift: [shift; 2],
            rolled: grid,
            trained_window: [trained[index]; 2],
        };
        // The padded grid is rolled.
        stage.rolled = stage.order(false).padded(grid);
        stages.push(stage);
    }
    let positions = config.flag("use_absolute_embeddings")?.unwrap_or(false);
    if positions && version == Version::V2 {
        let reason = "is true, but the library adds one position too many for swinv2 and fails";
        return Err(config.error("use_absolute_embeddings", reason));
    }
    let (dim, last_heads, hidden) = match stages.last() {
        Some(last) => (last.dim, last.heads, last.hidden),
        None => return Err(config.error("depths", "is empty")),
    };
    Ok(Vit {
        image,
        patch,
        patch_filter: None,
        dim,
        depth: depths.iter().sum(),
        heads: last_heads,
        kv_heads: None,
        hidden,
        mlp: Mlp::Plain(activation(config, "hidden_act", kind.activation)?),
        norms: Norm {
            kind: NormKind::Layer,
            epsilon: config.number("layer_norm_eps")?.unwrap_or(kind.epsilon),
        },
        // Embeddings and merged patches have this norm whatever the other norms are.
        patch_norm: Some(Norm::PYTORCH),
        blocks: Blocks {
            form: match version {
                Version::V1 => BlockForm::PreNorm,
                Version::V2 => BlockForm::PostNorm,
            },
            ..Blocks::default()
        },
        patch_bias: true,
        class_token: false,
        distillation_token: false,
        registers: 0,
        positions: positions.then_some(Positions::Table {
            prefix: 0,
            fitting: Fitting::Transformers {
                configured,
                keep: image == size,
                square_image: image[0] == image[1],
                filter: Filter::Cubic,
            },
        }),
        rotary: None,
        hierarchy: Some(Hierarchy::Swin(Swin {
            version,
            stages,
            merging_norm: Norm::PYTORCH,
            fitting: None,
            merges_after: true,
        })),
        relative: None,
        pre_norm: false,
        qkv_bias: {
            let bias = config.flag("qkv_bias")?.unwrap_or(true);
            [bias, bias && version == Version::V1, bias]
        },
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [false; 2],
        norm: true,
        pooling: Pooling::Mean { skip: 0 },
        pooled_norm: false,
        neck: Neck::None,
        classes: 0,
    })
}
