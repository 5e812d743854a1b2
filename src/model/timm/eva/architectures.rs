//! Table of timm's entry points of the class: the arguments of each name, which `model_args` may override. A test
//! compares it with timm's own registry.

use super::super::architectures::{
    BASE, BETWIXT, GlobalPool, LARGE, MEDIUM, MEDIUM_DEEP, RMS_NORM, SMALL, Size, TINY,
};
use super::{Arguments, KvHeads, RopeType};
use crate::model::norm::Norm;

/// A name without the input size at its end, the possible input sizes, and the arguments.
struct Row(&'static str, &'static [usize], usize, Size, Style);

/// Ratio of SwiGLU's width. It gives as many parameters as two layers of four times the width.
const GATED: f64 = 4.0 * 2.0 / 3.0;

const HUGE: Size = Size(1280, 32, 20, 4.0);
const HUGE_SAPIENS: Size = Size(1280, 32, 16, 4.0);
const GIANT: Size = Size(1408, 40, 16, 6144.0 / 1408.0);
const GIANT_LINGBOT: Size = Size(1536, 40, 24, GATED);
const GIANT_SAPIENS: Size = Size(1536, 40, 24, 4.0);
const GIGANTIC: Size = Size(1536, 50, 16, 8960.0 / 1536.0);
const GIGANTIC_47: Size = Size(1536, 47, 16, 8960.0 / 1536.0);
const ENORMOUS: Size = Size(1792, 64, 16, 15360.0 / 1792.0);

const TINY_GATED: Size = Size(192, 12, 3, GATED);
const SMALL_GATED: Size = Size(384, 12, 6, GATED);
const BASE_GATED: Size = Size(768, 12, 12, GATED);
const LARGE_GATED: Size = Size(1024, 24, 16, GATED);

/// Differences of an architecture from the defaults.
#[derive(Clone, Copy)]
enum Style {
    Plain,
    ClassToken,
    /// EVA-02. The number in the name is the image size.
    Eva02,
    /// `Eva02` with a norm in the feed-forward network, and a layer each for queries, keys and values.
    Eva02Norm,
    /// `Eva02Norm` with a norm after attention, and pooling by the class token.
    Eva02Clip,
    /// Norms after attention and network.
    Eva02PostNorm,
    /// This many registers, no class token.
    Registers(usize),
    RegistersNoQkvBias,
    /// Perception Encoder for contrastive learning, by the grid that its positions were trained for.
    PeCore(usize),
    /// `PeCore` without a class token.
    PeCoreGap,
    PeLang,
    PeLangGap,
    PeSpatial,
    PeSpatialGap,
    /// Rotary position embedding in place of the table.
    Rope,
    /// Rotary position embedding in addition to the table.
    RopeApe,
    /// Rotary position embedding with learned frequencies, in place of the table.
    RopeMixed,
    RopeMixedApe,
    Dinov3,
    Dinov3QkvBias,
    /// DINOv3 with SwiGLU, whose number of channels is a multiple of this.
    Dinov3SwiGlu(usize),
    Dinov3SwiGluQkvBias,
    Lingbot,
    LingbotSwiGlu,
    /// Fewer heads of keys and values in all blocks but the first and the last ones.
    Sapiens2,
}

use Style::{
    ClassToken, Dinov3, Dinov3QkvBias, Dinov3SwiGlu, Dinov3SwiGluQkvBias, Eva02, Eva02Clip, Eva02Norm,
    Eva02PostNorm, Lingbot, LingbotSwiGlu, PeCore, PeCoreGap, PeLang, PeLangGap, PeSpatial, PeSpatialGap,
    Plain, Registers, RegistersNoQkvBias, Rope, RopeApe, RopeMixed, RopeMixedApe, Sapiens2,
};

/// Number of Sapiens2's blocks at each end that have as many heads of keys and values as of queries.
const FULL_BLOCKS: usize = 8;

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row("eva_giant_patch14", &[224, 336, 560], 14, GIANT, Plain),
    Row("eva_giant_patch14_clip", &[224], 14, GIANT, ClassToken),
    Row("eva02_tiny_patch14", &[224, 336], 14, TINY_GATED, Eva02),
    Row("eva02_small_patch14", &[224, 336], 14, SMALL_GATED, Eva02),
    Row("eva02_base_patch14", &[224, 448], 14, BASE_GATED, Eva02Norm),
    Row("eva02_large_patch14", &[224, 448], 14, LARGE_GATED, Eva02Norm),
    Row("eva02_base_patch16_clip", &[224], 16, BASE_GATED, Eva02Clip),
    Row("eva02_large_patch14_clip", &[224, 336], 14, LARGE_GATED, Eva02Clip),
    Row("eva02_enormous_patch14_clip", &[224], 14, ENORMOUS, Eva02PostNorm),

    Row("vit_medium_patch16_rope_reg1_gap", &[256], 16, MEDIUM, Registers(1)),
    Row("vit_mediumd_patch16_rope_reg1_gap", &[256], 16, MEDIUM_DEEP, RegistersNoQkvBias),
    Row("vit_betwixt_patch16_rope_reg4_gap", &[256], 16, BETWIXT, Registers(4)),
    Row("vit_base_patch16_rope_reg1_gap", &[256], 16, BASE, Registers(1)),
    Row("vit_small_patch16_rope", &[224], 16, SMALL, Rope),
    Row("vit_base_patch16_rope", &[224], 16, BASE, Rope),
    Row("vit_large_patch16_rope", &[224], 16, LARGE, Rope),
    Row("vit_small_patch16_rope_ape", &[224], 16, SMALL, RopeApe),
    Row("vit_base_patch16_rope_ape", &[224], 16, BASE, RopeApe),
    Row("vit_large_patch16_rope_ape", &[224], 16, LARGE, RopeApe),
    Row("vit_small_patch16_rope_mixed", &[224], 16, SMALL, RopeMixed),
    Row("vit_base_patch16_rope_mixed", &[224], 16, BASE, RopeMixed),
    Row("vit_large_patch16_rope_mixed", &[224], 16, LARGE, RopeMixed),
    Row("vit_small_patch16_rope_mixed_ape", &[224], 16, SMALL, RopeMixedApe),
    Row("vit_base_patch16_rope_mixed_ape", &[224], 16, BASE, RopeMixedApe),
    Row("vit_large_patch16_rope_mixed_ape", &[224], 16, LARGE, RopeMixedApe),

    Row("vit_pe_core_tiny_patch16", &[384], 16, TINY, PeCore(24)),
    Row("vit_pe_core_small_patch16", &[384], 16, SMALL, PeCore(24)),
    Row("vit_pe_core_base_patch16", &[224], 16, BASE, PeCore(14)),
    Row("vit_pe_core_large_patch14", &[336], 14, LARGE, PeCore(24)),
    Row("vit_pe_core_gigantic_patch14", &[448], 14, GIGANTIC, PeCoreGap),
    Row("vit_pe_lang_large_patch14", &[448], 14, Size(1024, 23, 16, 4.0), PeLang),
    Row("vit_pe_lang_gigantic_patch14", &[448], 14, GIGANTIC_47, PeLangGap),
    Row("vit_pe_spatial_tiny_patch16", &[512], 16, TINY, PeSpatial),
    Row("vit_pe_spatial_small_patch16", &[512], 16, SMALL, PeSpatial),
    Row("vit_pe_spatial_base_patch16", &[512], 16, BASE, PeSpatial),
    Row("vit_pe_spatial_large_patch14", &[448], 14, LARGE, PeSpatial),
    Row("vit_pe_spatial_gigantic_patch14", &[448], 14, GIGANTIC, PeSpatialGap),

    Row("vit_tiny_patch16_dinov3_qkvb", &[], 16, TINY, Dinov3QkvBias),
    Row("vit_small_patch16_dinov3", &[], 16, SMALL, Dinov3),
    Row("vit_small_patch16_dinov3_qkvb", &[], 16, SMALL, Dinov3QkvBias),
    Row("vit_small_plus_patch16_dinov3", &[], 16, SMALL, Dinov3SwiGlu(8)),
    Row("vit_small_plus_patch16_dinov3_qkvb", &[], 16, SMALL, Dinov3SwiGluQkvBias),
    Row("vit_base_patch16_dinov3", &[], 16, BASE, Dinov3),
    Row("vit_base_patch16_dinov3_qkvb", &[], 16, BASE, Dinov3QkvBias),
    Row("vit_large_patch16_dinov3", &[], 16, LARGE, Dinov3),
    Row("vit_large_patch16_dinov3_qkvb", &[], 16, LARGE, Dinov3QkvBias),
    Row("vit_huge_plus_patch16_dinov3", &[], 16, HUGE, Dinov3SwiGlu(8)),
    Row("vit_huge_plus_patch16_dinov3_qkvb", &[], 16, HUGE, Dinov3SwiGluQkvBias),
    Row("vit_7b_patch16_dinov3", &[], 16, Size(4096, 40, 32, 2.0), Dinov3SwiGlu(64)),
    Row("vit_small_patch16_lingbot", &[], 16, SMALL, Lingbot),
    Row("vit_base_patch16_lingbot", &[], 16, BASE, Lingbot),
    Row("vit_large_patch16_lingbot", &[], 16, LARGE, Lingbot),
    Row("vit_giant_patch16_lingbot", &[], 16, GIANT_LINGBOT, LingbotSwiGlu),
    Row("vit_base_patch16_sapiens2", &[], 16, BASE, Sapiens2),
    Row("vit_large_patch16_sapiens2", &[], 16, LARGE, Sapiens2),
    Row("vit_huge_patch16_sapiens2", &[], 16, HUGE_SAPIENS, Sapiens2),
    Row("vit_giant_patch16_sapiens2", &[], 16, GIANT_SAPIENS, Sapiens2),
    Row("vit_5b_patch16_sapiens2", &[], 16, Size(2432, 56, 32, 4.0), Sapiens2),
];

/// Iterates over the names of all architectures.
pub(in crate::model::timm) fn names() -> impl Iterator<Item = String> {
    TABLE.iter().flat_map(|&Row(stem, sizes, ..)| {
        let plain = sizes.is_empty().then(|| stem.to_owned());
        plain
            .into_iter()
            .chain(sizes.iter().map(move |size| format!("{stem}_{size}")))
    })
}

/// Returns the arguments of `name`, or `None` if the architecture is not supported.
pub(in crate::model::timm) fn lookup(name: &str) -> Option<Arguments> {
    let (stem, size) = match name.rsplit_once('_') {
        Some((stem, digits)) => (stem, digits.parse::<usize>().ok()),
        None => (name, None),
    };
    let found = TABLE.iter().find(|Row(row, sizes, ..)| {
        *row == name && sizes.is_empty() || *row == stem && size.is_some_and(|size| sizes.contains(&size))
    });
    found.map(|row| arguments(row, size))
}

fn arguments(&Row(_, _, patch, shape, style): &Row, size: Option<usize>) -> Arguments {
    let Size(embed_dim, depth, num_heads, mlp_ratio) = shape;
    let plain = Arguments {
        patch_size: [patch, patch],
        embed_dim,
        depth,
        num_heads,
        mlp_ratio,
        ..Arguments::default()
    };
    let sized = Arguments {
        img_size: size.map(|size| [size, size]),
        ..plain.clone()
    };
    let eva02 = Arguments {
        swiglu_mlp: true,
        use_rot_pos_emb: true,
        ref_feat_shape: Some([16, 16]),
        ..sized.clone()
    };
    let eva02_norm = Arguments {
        qkv_fused: false,
        scale_mlp: true,
        ..eva02.clone()
    };
    let registers = |num_reg_tokens| Arguments {
        layer_scale: true,
        class_token: false,
        num_reg_tokens,
        use_rot_pos_emb: true,
        use_abs_pos_emb: false,
        ref_feat_shape: Some([16, 16]),
        ..sized.clone()
    };
    let pe = |grid, rope_grid_offset| Arguments {
        plain_attention: true,
        use_pre_transformer_norm: true,
        use_rot_pos_emb: true,
        ref_feat_shape: Some([grid, grid]),
        rope_grid_offset,
        rope_columns_first: true,
        norm_layer: Norm::PYTORCH,
        ..plain.clone()
    };
    let pe_core = |arguments| Arguments {
        global_pool: GlobalPool::Map,
        attn_pool_num_heads: Some(8),
        attn_pool_mlp_ratio: Some(4.0),
        ..arguments
    };
    let gap = |arguments| Arguments {
        class_token: false,
        rope_grid_offset: 0.0,
        ..arguments
    };
    let without_norm = |arguments| Arguments {
        use_post_transformer_norm: Some(false),
        use_fc_norm: Some(false),
        ..arguments
    };
    let pe_lang = || Arguments {
        layer_scale: true,
        ..without_norm(pe(32, 1.0))
    };
    let rope = Arguments {
        plain_attention: true,
        layer_scale: true,
        global_pool: GlobalPool::Token,
        use_abs_pos_emb: false,
        use_rot_pos_emb: true,
        rope_columns_first: true,
        rope_temperature: 100.0,
        ..plain.clone()
    };
    let beside_table = |arguments| Arguments {
        no_embed_class: true,
        use_abs_pos_emb: true,
        ..arguments
    };
    let mixed = Arguments {
        rope_type: RopeType::Mixed,
        rope_temperature: 10.0,
        ..rope.clone()
    };
    let dinov3 = Arguments {
        dynamic_img_size: true,
        qkv_bias: false,
        layer_scale: true,
        rope_type: RopeType::Dinov3,
        rope_temperature: 100.0,
        rope_rotate_half: true,
        use_rot_pos_emb: true,
        use_abs_pos_emb: false,
        num_reg_tokens: 4,
        use_fc_norm: Some(false),
        norm_layer: Norm::PYTORCH,
        ..plain.clone()
    };
    let qkv_bias = |arguments| Arguments {
        qkv_bias: true,
        ..arguments
    };
    let swiglu = |arguments, swiglu_align_to| Arguments {
        swiglu_mlp: true,
        swiglu_align_to,
        ..arguments
    };
    let class_token = |arguments| Arguments {
        global_pool: GlobalPool::Token,
        ..arguments
    };
    match style {
        Plain => plain,
        ClassToken => class_token(plain),
        Eva02 => eva02,
        Eva02Norm => eva02_norm,
        Eva02Clip => Arguments {
            scale_attn_inner: true,
            ..class_token(eva02_norm)
        },
        Eva02PostNorm => Arguments {
            use_post_norm: true,
            ..class_token(sized)
        },
        Registers(count) => registers(count),
        RegistersNoQkvBias => Arguments {
            qkv_bias: false,
            ..registers(1)
        },
        PeCore(grid) => pe_core(pe(grid, 1.0)),
        PeCoreGap => gap(pe_core(pe(32, 0.0))),
        PeLang => pe_lang(),
        PeLangGap => gap(pe_lang()),
        PeSpatial => without_norm(pe(32, 1.0)),
        PeSpatialGap => Arguments {
            layer_scale: true,
            ..gap(without_norm(pe(32, 0.0)))
        },
        Rope => rope,
        RopeApe => beside_table(rope),
        RopeMixed => mixed,
        RopeMixedApe => beside_table(mixed),
        Dinov3 => dinov3,
        Dinov3QkvBias => qkv_bias(dinov3),
        Dinov3SwiGlu(unit) => swiglu(dinov3, unit),
        Dinov3SwiGluQkvBias => swiglu(qkv_bias(dinov3), 8),
        Lingbot => class_token(qkv_bias(dinov3)),
        LingbotSwiGlu => class_token(swiglu(dinov3, 8)),
        Sapiens2 => {
            let full = |block: usize| block < FULL_BLOCKS || block + FULL_BLOCKS >= depth;
            let heads = (0..depth).map(|block| if full(block) { num_heads } else { num_heads / 2 });
            Arguments {
                img_size: Some([1024, 768]),
                num_kv_heads: Some(KvHeads::OfBlocks(heads.collect())),
                plain_attention: true,
                qkv_fused: false,
                qk_norm: true,
                attn_only_layer_scale: true,
                num_reg_tokens: 8,
                norm_layer: RMS_NORM,
                ..class_token(swiglu(qkv_bias(dinov3), 0))
            }
        }
    }
}
