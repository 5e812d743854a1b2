//! Weight decay and learning rate of each tensor, as timm's `param_groups_layer_decay` assigns them.

use std::collections::BTreeMap;

use crate::objective::{BIAS_TENSOR, SCALE_TENSOR};

/// Parts of the names of tensors that do not decay, besides biases and norms: positions, tokens and scales.
const NO_DECAY: [&str; 11] = [
    "pos_embed",
    "position_embedding",
    "positional_embedding",
    "cls_token",
    "class_embedding",
    "dist_token",
    "distillation_token",
    "reg_token",
    "register_tokens",
    "mask_token",
    "relative_position_bias_table",
];

/// Segments of tensor names before the index of a layer.
const LAYERS: [&str; 5] = ["blocks", "layers", "layer", "resblocks", "stages"];

/// Position of a tensor in the model: the embedding, a layer, or the head. The order is the order of computation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    Embedding,
    /// Indices of the stage and the layer, or of the layer.
    Layer(Vec<usize>),
    Head,
}

/// Tower of a dual encoder, or half of an image encoder with a text decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tower {
    Image,
    Text,
}

impl Tower {
    /// Returns the tower of a tensor of transformers or of open_clip, or encoder and decoder of one that makes texts or masks. `None` for what the loss learns.
    pub(crate) fn of(name: &str) -> Option<Self> {
        const IMAGE: [&str; 5] = [
            "vision_model.",
            "visual_projection.",
            "visual.",
            "encoder.",
            "vision_encoder.",
        ];
        match name {
            SCALE_TENSOR | BIAS_TENSOR => None,
            _ if IMAGE.iter().any(|prefix| name.starts_with(prefix)) => Some(Self::Image),
            _ => Some(Self::Text),
        }
    }
}

/// Returns true if the tensor `name` decays by default.
///
/// Biases, norms and other vectors do not decay. Neither do positions and tokens.
pub fn decays(name: &str, shape: &[usize]) -> bool {
    shape.len() > 1 && !name.ends_with(".bias") && !NO_DECAY.iter().any(|part| name.contains(part))
}

/// Returns the factor of the learning rate of each tensor in `names`, in their order.
///
/// The factor is 1 for the head, and `decay` to the power of the number of layers above for the others. The final norm
/// belongs to the last layer.
pub fn rate_factors(names: &[&str], decay: f64) -> Vec<f64> {
    let (levels, head) = levels(names);
    let factor = |level| decay.powi((head - level) as i32);
    levels.into_iter().map(factor).collect()
}

/// Returns the layer of each tensor in `names`, and that of the head. The embedding is layer 0.
pub(crate) fn levels(names: &[&str]) -> (Vec<usize>, usize) {
    let depths: Vec<Depth> = names.iter().map(|name| depth(name)).collect();
    let last = depths
        .iter()
        .filter(|depth| matches!(depth, Depth::Layer(_)))
        .max();
    let of = |index: usize| match last {
        Some(last) if is_final_norm(names[index]) => last.clone(),
        _ => depths[index].clone(),
    };
    let placed: Vec<Depth> = (0..names.len()).map(of).collect();
    let mut levels: BTreeMap<&Depth, usize> = placed.iter().map(|depth| (depth, 0)).collect();
    levels.insert(&Depth::Head, 0);
    for (level, (_, place)) in levels.iter_mut().enumerate() {
        *place = level;
    }
    let of_names = placed.iter().map(|depth| levels[depth]).collect();
    (of_names, levels.len() - 1)
}

/// Returns true if the tensor belongs to the norm of all tokens after the last block.
fn is_final_norm(name: &str) -> bool {
    let mut segments = name.rsplit('.').skip(1);
    let layer = segments.next().unwrap_or_default();
    const NORMS: [&str; 6] = [
        "norm",
        "layernorm",
        "post_layernorm",
        "ln_post",
        "final_layer_norm",
        "ln_final",
    ];
    // Hiera's norm of the pooled tokens is part of its head.
    NORMS.contains(&layer) && !name.starts_with("head.norm.") && matches!(depth(name), Depth::Head)
}

/// Returns the position of a tensor in the model by its name.
fn depth(name: &str) -> Depth {
    let segments: Vec<&str> = name.split('.').collect();
    let index = |pair: &[&str]| -> Option<usize> {
        let is_layer = LAYERS.contains(&pair[0]);
        pair[1].parse().ok().filter(|_| is_layer)
    };
    let mut indices: Vec<usize> = segments.windows(2).filter_map(index).collect();
    if !indices.is_empty() {
        // The downsampling of a stage comes before the first block of the stage.
        if segments.contains(&"downsample") {
            indices.push(0);
        }
        return Depth::Layer(indices);
    }
    const EMBEDDING: [&str; 6] = ["embed", "token", "class_embedding", "conv1", "norm_pre", "ln_pre"];
    let is_embedding = EMBEDDING.iter().any(|part| name.contains(part)) || name.contains("pre_layernorm");
    if is_embedding {
        Depth::Embedding
    } else {
        Depth::Head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factors are those of timm 1.0.31: `param_groups_layer_decay(model, layer_decay=0.5)` for
    /// `vit_tiny_patch16_224` with 2 blocks, for `swin_tiny_patch4_window7_224` with depths 1 and 2, and for
    /// `hiera_tiny_224` with 4 blocks.
    #[test]
    fn factors_are_those_of_timm() {
        let vit = [
            ("cls_token", 0.125),
            ("pos_embed", 0.125),
            ("patch_embed.proj.weight", 0.125),
            ("blocks.0.norm1.weight", 0.25),
            ("blocks.1.mlp.fc2.bias", 0.5),
            ("norm.weight", 0.5),
            ("head.bias", 1.0),
        ];
        let swin = [
            ("patch_embed.norm.weight", 0.0625),
            ("layers.0.blocks.0.norm1.weight", 0.125),
            ("layers.1.downsample.norm.weight", 0.25),
            ("layers.1.blocks.0.attn.qkv.weight", 0.25),
            ("layers.1.blocks.1.attn.qkv.weight", 0.5),
            ("norm.weight", 0.5),
            ("head.fc.weight", 1.0),
        ];
        let hiera = [
            ("pos_embed", 0.031_25),
            ("patch_embed.proj.weight", 0.031_25),
            ("blocks.0.norm1.weight", 0.0625),
            ("blocks.1.proj.weight", 0.125),
            ("blocks.2.attn.qkv.weight", 0.25),
            ("blocks.3.mlp.fc2.bias", 0.5),
            ("head.norm.weight", 1.0),
        ];
        for expected in [vit, swin, hiera] {
            let names: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
            let factors: Vec<f64> = expected.iter().map(|(_, factor)| *factor).collect();
            assert_eq!(rate_factors(&names, 0.5), factors);
        }
    }

    #[test]
    fn transformers_names_have_layers_too() {
        let names = [
            "vit.embeddings.position_embeddings",
            "vit.encoder.layer.0.output.dense.weight",
            "vit.encoder.layer.1.output.dense.weight",
            "vit.layernorm.weight",
            "classifier.weight",
        ];
        assert_eq!(rate_factors(&names, 0.5), [0.125, 0.25, 0.5, 0.5, 1.0]);
    }

    #[test]
    fn only_weights_decay() {
        assert!(decays("blocks.0.attn.qkv.weight", &[192, 64]));
        assert!(decays("patch_embed.proj.weight", &[64, 3, 4, 4]));
        assert!(!decays("blocks.0.attn.qkv.bias", &[192]));
        assert!(!decays("norm.weight", &[64]));
        assert!(!decays("pos_embed", &[1, 64, 64]));
        assert!(!decays("vit.embeddings.cls_token", &[1, 1, 64]));
    }

    /// The norm after the last block of each tower belongs to that block.
    #[test]
    fn final_norms_of_both_towers_belong_to_the_last_layer() {
        for [block, norm, head] in [
            [
                "vision_model.encoder.layers.0.layer_norm1.weight",
                "vision_model.post_layernorm.weight",
                "visual_projection.weight",
            ],
            [
                "text_model.encoder.layers.0.layer_norm1.weight",
                "text_model.final_layer_norm.weight",
                "text_projection.weight",
            ],
            [
                "transformer.resblocks.0.ln_1.weight",
                "ln_final.weight",
                "text_projection",
            ],
        ] {
            assert_eq!(rate_factors(&[block, norm, head], 0.5), [0.5, 0.5, 1.0], "{norm}");
        }
    }
}
