//! Table of timm's entry points for the supported families: the arguments of each name, which `model_args` may
//! override. A test compares it with timm's own registry.

use crate::model::norm::{Norm, NormKind};
use crate::model::vit::BlockForm;
use crate::ops::Activation;

/// Arguments of timm's `VisionTransformer` that affect inference, by timm's names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) patch_size: [usize; 2],
    pub(super) embed_dim: usize,
    pub(super) depth: usize,
    pub(super) num_heads: usize,
    pub(super) mlp_ratio: f64,
    pub(super) qkv_bias: bool,
    pub(super) proj_bias: bool,
    /// True if `init_values` is set, which enables LayerScale.
    pub(super) layer_scale: bool,
    pub(super) class_token: bool,
    pub(super) reg_tokens: usize,
    pub(super) pos_embed: bool,
    pub(super) no_embed_class: bool,
    pub(super) pre_norm: bool,
    pub(super) final_norm: bool,
    pub(super) fc_norm: Option<bool>,
    pub(super) global_pool: GlobalPool,
    pub(super) pool_include_prefix: bool,
    pub(super) act_layer: Activation,
    pub(super) mlp_layer: Gating,
    pub(super) norm_layer: Norm,
    pub(super) embed_norm_layer: Option<Norm>,
    pub(super) qk_norm: bool,
    pub(super) scale_attn_norm: bool,
    pub(super) scale_mlp_norm: bool,
    pub(super) block_fn: BlockForm,
    /// True if `block_fn` is `DiffParallelScalingBlock`.
    pub(super) differential_block: bool,
    /// True if `attn_layer` is `"diff"`.
    pub(super) differential: bool,
    /// True if the class is `VisionTransformerDistilled`.
    pub(super) distilled: bool,
}

/// timm's `mlp_layer`: `Mlp`, `SwiGLUPacked` or `SwiGLU`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gating {
    None,
    Packed,
    Separate,
}

/// timm's `global_pool`, as far as it is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GlobalPool {
    Token,
    Avg,
    Max,
    AvgMax,
    Map,
    Prr,
}

/// Epsilon of timm's norms, unless the architecture specifies another.
pub(super) const EPSILON: f64 = 1e-6;

pub(super) const LAYER_NORM: Norm = Norm {
    kind: NormKind::Layer,
    epsilon: EPSILON,
};
pub(super) const RMS_NORM: Norm = Norm {
    kind: NormKind::Rms,
    epsilon: EPSILON,
};
const RMS_NORM_AIM: Norm = Norm {
    kind: NormKind::Rms,
    epsilon: 1e-5,
};

impl Default for Arguments {
    fn default() -> Self {
        Self {
            patch_size: [16, 16],
            embed_dim: 768,
            depth: 12,
            num_heads: 12,
            mlp_ratio: 4.0,
            qkv_bias: true,
            proj_bias: true,
            layer_scale: false,
            class_token: true,
            reg_tokens: 0,
            pos_embed: true,
            no_embed_class: false,
            pre_norm: false,
            final_norm: true,
            fc_norm: None,
            global_pool: GlobalPool::Token,
            pool_include_prefix: false,
            act_layer: Activation::GeluErf,
            mlp_layer: Gating::None,
            norm_layer: LAYER_NORM,
            embed_norm_layer: None,
            qk_norm: false,
            scale_attn_norm: false,
            scale_mlp_norm: false,
            block_fn: BlockForm::PreNorm,
            differential_block: false,
            differential: false,
            distilled: false,
        }
    }
}

/// A name without the input size at its end, the possible input sizes, and the arguments.
struct Row(&'static str, &'static [usize], usize, Size, Style);

/// Width, depth, heads, and ratio of the feed-forward network's width.
#[derive(Clone, Copy)]
pub(super) struct Size(
    pub(super) usize,
    pub(super) usize,
    pub(super) usize,
    pub(super) f64,
);

const XSMALL: Size = Size(256, 10, 4, 4.0);
const WEE: Size = Size(256, 14, 4, 5.0);
const LITTLE: Size = Size(320, 14, 5, 5.6);
pub(super) const TINY: Size = Size(192, 12, 3, 4.0);
pub(super) const SMALL: Size = Size(384, 12, 6, 4.0);
pub(super) const MEDIUM: Size = Size(512, 12, 8, 4.0);
pub(super) const MEDIUM_DEEP: Size = Size(512, 20, 8, 4.0);
pub(super) const BETWIXT: Size = Size(640, 12, 10, 4.0);
pub(super) const BASE: Size = Size(768, 12, 12, 4.0);
const BASE_PLUS: Size = Size(896, 12, 14, 4.0);
pub(super) const LARGE: Size = Size(1024, 24, 16, 4.0);
const SO150M: Size = Size(896, 18, 14, 2.572);
const SO150M2: Size = Size(832, 21, 13, 34.0 / 13.0);
const SO400M: Size = Size(1152, 27, 16, 3.7362);
const HUGE: Size = Size(1280, 32, 16, 4.0);
const GIANT: Size = Size(1408, 40, 16, 48.0 / 11.0);
const GIANT_DINO: Size = Size(1536, 40, 24, 2.66667 * 2.0);
const GIANT_OPT: Size = Size(1536, 40, 16, 4.0);
const GIGANTIC: Size = Size(1664, 48, 16, 64.0 / 13.0);

/// Differences of an architecture from the defaults.
#[derive(Clone, Copy)]
enum Style {
    Plain,
    NoQkvBias,
    LayerScale,
    /// Pools by the mean of the tokens, with a norm after pooling.
    Average,
    /// No class token. Pools by the mean of the tokens, with a norm before pooling.
    Gap,
    /// `Gap` with LayerScale and without a bias of queries, keys and values.
    GapNoQkvBias,
    /// This many registers, no class token, LayerScale, pooling by the mean.
    Registers(usize),
    /// `Registers` without LayerScale.
    RegistersUnscaled(usize),
    /// LayerScale, a class token, and no norm after the blocks.
    Intern,
    So150m,
    So150m2,
    Test2,
    Test3,
    Dinov2,
    Dinov2Registers(usize),
    Dinov2SwiGlu,
    Dinov2RegistersSwiGlu(usize),
    Clip,
    ClipQuickGelu,
    Siglip,
    SiglipTanh,
    GapTanh,
    Deit3,
    Distilled,
    /// Only patches have positions.
    Flexi,
    /// RMS norms, SwiGLU, and no bias except that of the patch projection.
    Aim,
    Beit3,
    Test4,
    /// RMS norms, norms of queries and keys, parallel blocks.
    Scaled,
    /// Pairs of branches.
    Pairs,
    /// Norms after attention and network.
    PostNorm,
    ParallelRegisters,
    DifferentialParallelRegisters,
    DifferentialRegisters,
    So150mMap,
    /// This many registers, no norm after the blocks.
    Radio(usize),
    RadioLayerScale(usize),
}

use Style::{
    Aim, Average, Beit3, Clip, ClipQuickGelu, Deit3, DifferentialParallelRegisters, DifferentialRegisters,
    Dinov2, Dinov2Registers, Dinov2RegistersSwiGlu, Dinov2SwiGlu, Distilled, Flexi, Gap, GapNoQkvBias,
    GapTanh, Intern, LayerScale, NoQkvBias, Pairs, ParallelRegisters, Plain, PostNorm, Radio,
    RadioLayerScale, Registers, RegistersUnscaled, Scaled, Siglip, SiglipTanh, So150m, So150m2, So150mMap,
    Test2, Test3, Test4,
};

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row("vit_tiny_patch16", &[224, 384], 16, TINY, Plain),
    Row("vit_small_patch32", &[224, 384], 32, SMALL, Plain),
    Row("vit_small_patch16", &[224, 384], 16, SMALL, Plain),
    Row("vit_small_patch8", &[224], 8, SMALL, Plain),
    Row("vit_base_patch32", &[224, 384], 32, BASE, Plain),
    Row("vit_base_patch16", &[224, 384], 16, BASE, Plain),
    Row("vit_base_patch8", &[224], 8, BASE, Plain),
    Row("vit_large_patch32", &[224, 384], 32, LARGE, Plain),
    Row("vit_large_patch16", &[224, 384], 16, LARGE, Plain),
    Row("vit_large_patch14", &[224], 14, LARGE, Plain),
    Row("vit_huge_patch14", &[224], 14, HUGE, Plain),
    Row("vit_giant_patch14", &[224], 14, GIANT, Plain),
    Row("vit_gigantic_patch14", &[224], 14, GIGANTIC, Plain),
    Row("vit_base_patch16_224_miil", &[], 16, BASE, NoQkvBias),
    Row("vit_base_patch32_plus", &[256], 32, BASE_PLUS, LayerScale),
    Row("vit_base_patch16_plus", &[240], 16, BASE_PLUS, LayerScale),
    Row("vit_small_patch16_36x1", &[224], 16, Size(384, 36, 6, 4.0), LayerScale),
    Row("vit_intern300m_patch14", &[448], 14, LARGE, Intern),
    Row("eva_large_patch14", &[196, 336], 14, LARGE, Average),
    Row("test_vit", &[], 16, Size(64, 6, 2, 3.0), Plain),
    Row("test_vit2", &[], 16, Size(64, 8, 2, 3.0), Test2),
    Row("test_vit3", &[], 16, Size(96, 9, 3, 2.0), Test3),

    Row("vit_medium_patch16_gap", &[240, 256, 384], 16, MEDIUM, GapNoQkvBias),
    Row("vit_betwixt_patch16_gap", &[256], 16, BETWIXT, GapNoQkvBias),
    Row("vit_base_patch16_gap", &[224], 16, Size(768, 12, 16, 4.0), Gap),
    Row("vit_huge_patch14_gap", &[224], 14, HUGE, Gap),
    Row("vit_huge_patch16_gap", &[448], 16, HUGE, Gap),
    Row("vit_giant_patch16_gap", &[224], 16, GIANT, Gap),

    Row("vit_wee_patch16_reg1_gap", &[256], 16, WEE, Registers(1)),
    Row("vit_little_patch16_reg1_gap", &[256], 16, LITTLE, Registers(1)),
    Row("vit_little_patch16_reg4_gap", &[256], 16, LITTLE, Registers(4)),
    Row("vit_medium_patch16_reg1_gap", &[256], 16, MEDIUM, Registers(1)),
    Row("vit_medium_patch16_reg4_gap", &[256], 16, MEDIUM, Registers(4)),
    Row("vit_mediumd_patch16_reg4_gap", &[256, 384], 16, MEDIUM_DEEP, Registers(4)),
    Row("vit_betwixt_patch16_reg1_gap", &[256], 16, BETWIXT, Registers(1)),
    Row("vit_betwixt_patch16_reg4_gap", &[256, 384], 16, BETWIXT, Registers(4)),
    Row("vit_base_patch16_reg4_gap", &[256], 16, BASE, RegistersUnscaled(4)),
    Row("vit_so150m_patch16_reg4_gap", &[256, 384], 16, SO150M, So150m),
    Row("vit_so150m2_patch16_reg1_gap", &[256, 384, 448], 16, SO150M2, So150m2),

    Row("flexivit_small", &[], 16, SMALL, Flexi),
    Row("flexivit_base", &[], 16, BASE, Flexi),
    Row("flexivit_large", &[], 16, LARGE, Flexi),
    Row("vit_base_patch16_xp", &[224], 16, BASE, Scaled),
    Row("vit_large_patch14_xp", &[224], 14, LARGE, Scaled),
    Row("vit_huge_patch14_xp", &[224], 14, HUGE, Scaled),
    Row("vit_small_patch16_18x2", &[224], 16, Size(384, 18, 6, 4.0), Pairs),
    Row("vit_base_patch16_18x2", &[224], 16, Size(768, 18, 12, 4.0), Pairs),
    Row("vit_base_patch16_rpn", &[224], 16, BASE, PostNorm),
    Row("vit_pwee_patch16_reg1_gap", &[256], 16, Size(256, 16, 4, 5.0), ParallelRegisters),
    Row("vit_dpwee_patch16_reg1_gap", &[256], 16, Size(256, 16, 4, 5.0), DifferentialParallelRegisters),
    Row("vit_dwee_patch16_reg1_gap", &[256], 16, WEE, DifferentialRegisters),
    Row("vit_dlittle_patch16_reg1_gap", &[256], 16, LITTLE, DifferentialRegisters),
    Row("vit_so150m_patch16_reg4_map", &[256], 16, SO150M, So150mMap),
    Row("test_vit4", &[], 16, Size(96, 9, 3, 3.0), Test4),

    Row("aimv2_large_patch14", &[224, 336, 448], 14, Size(1024, 24, 8, 2.75), Aim),
    Row("aimv2_huge_patch14", &[224, 336, 448], 14, Size(1536, 24, 12, 2.6667), Aim),
    Row("aimv2_1b_patch14", &[224, 336, 448], 14, Size(2048, 24, 16, 2.75), Aim),
    Row("aimv2_3b_patch14", &[224, 336, 448], 14, Size(3072, 24, 24, 2.6667), Aim),
    Row("beit3_base_patch16", &[224], 16, BASE, Beit3),
    Row("beit3_large_patch16", &[224], 16, LARGE, Beit3),
    Row("beit3_giant_patch14", &[224, 336], 14, Size(1408, 40, 16, 4.3637), Beit3),
    Row("vit_base_patch16_radio_v3", &[], 16, BASE, RadioLayerScale(7)),
    Row("vit_large_patch16_radio_v3", &[], 16, LARGE, RadioLayerScale(7)),
    Row("vit_huge_patch16_radio_v3", &[], 16, HUGE, Radio(7)),
    Row("vit_giant_patch16_radio_v3", &[], 16, Size(1536, 40, 24, 4.0), Radio(7)),
    Row("vit_huge_patch16_radio_v4", &[], 16, HUGE, Radio(9)),
    Row("vit_so400m_patch16_radio_v4", &[], 16, Size(1152, 27, 16, 4304.0 / 1152.0), Radio(9)),

    Row("deit_tiny_patch16", &[224], 16, TINY, Plain),
    Row("deit_small_patch16", &[224], 16, SMALL, Plain),
    Row("deit_base_patch16", &[224, 384], 16, BASE, Plain),
    Row("deit_tiny_distilled_patch16", &[224], 16, TINY, Distilled),
    Row("deit_small_distilled_patch16", &[224], 16, SMALL, Distilled),
    Row("deit_base_distilled_patch16", &[224, 384], 16, BASE, Distilled),
    Row("deit3_small_patch16", &[224, 384], 16, SMALL, Deit3),
    Row("deit3_medium_patch16", &[224], 16, MEDIUM, Deit3),
    Row("deit3_base_patch16", &[224, 384], 16, BASE, Deit3),
    Row("deit3_large_patch16", &[224, 384], 16, LARGE, Deit3),
    Row("deit3_huge_patch14", &[224], 14, HUGE, Deit3),

    Row("vit_small_patch14_dinov2", &[], 14, SMALL, Dinov2),
    Row("vit_base_patch14_dinov2", &[], 14, BASE, Dinov2),
    Row("vit_large_patch14_dinov2", &[], 14, LARGE, Dinov2),
    Row("vit_giant_patch14_dinov2", &[], 14, GIANT_DINO, Dinov2SwiGlu),
    Row("vit_small_patch14_reg4_dinov2", &[], 14, SMALL, Dinov2Registers(4)),
    Row("vit_base_patch14_reg4_dinov2", &[], 14, BASE, Dinov2Registers(4)),
    Row("vit_large_patch14_reg4_dinov2", &[], 14, LARGE, Dinov2Registers(4)),
    Row("vit_giant_patch14_reg4_dinov2", &[], 14, GIANT_DINO, Dinov2RegistersSwiGlu(4)),
    Row("vit_base_patch14_reg1_tipsv2", &[], 14, BASE, Dinov2Registers(1)),
    Row("vit_large_patch14_reg1_tipsv2", &[], 14, LARGE, Dinov2Registers(1)),
    Row("vit_so400m_patch14_reg1_tipsv2", &[], 14, Size(1152, 27, 16, 4304.0 / 1152.0), Dinov2Registers(1)),
    Row("vit_giant_patch14_reg1_tipsv2", &[], 14, GIANT_DINO, Dinov2RegistersSwiGlu(1)),

    Row("vit_xsmall_patch16_clip", &[224], 16, XSMALL, Clip),
    Row("vit_medium_patch32_clip", &[224], 32, MEDIUM, Clip),
    Row("vit_medium_patch16_clip", &[224], 16, MEDIUM, Clip),
    Row("vit_betwixt_patch32_clip", &[224], 32, BETWIXT, Clip),
    Row("vit_base_patch32_clip", &[224, 256, 384, 448], 32, BASE, Clip),
    Row("vit_base_patch16_clip", &[224, 384], 16, BASE, Clip),
    Row("vit_base_patch16_plus_clip", &[240], 16, BASE_PLUS, Clip),
    Row("vit_large_patch14_clip", &[224, 336], 14, LARGE, Clip),
    Row("vit_huge_patch14_clip", &[224, 336, 378], 14, HUGE, Clip),
    Row("vit_giant_patch14_clip", &[224], 14, GIANT, Clip),
    Row("vit_gigantic_patch14_clip", &[224, 378], 14, GIGANTIC, Clip),
    Row("vit_base_patch32_clip_quickgelu", &[224], 32, BASE, ClipQuickGelu),
    Row("vit_base_patch16_clip_quickgelu", &[224], 16, BASE, ClipQuickGelu),
    Row("vit_large_patch14_clip_quickgelu", &[224, 336], 14, LARGE, ClipQuickGelu),
    Row("vit_huge_patch14_clip_quickgelu", &[224, 378], 14, HUGE, ClipQuickGelu),
    Row("vit_gigantic_patch14_clip_quickgelu", &[224], 14, GIGANTIC, ClipQuickGelu),

    Row("vit_base_patch32_siglip", &[256], 32, BASE, SiglipTanh),
    Row("vit_base_patch16_siglip", &[224, 256, 384, 512], 16, BASE, Siglip),
    Row("vit_large_patch16_siglip", &[256, 384], 16, LARGE, Siglip),
    // Rows with `SiglipTanh`, such as this one, belong to SigLIP 2 only.
    Row("vit_large_patch16_siglip_512", &[], 16, LARGE, SiglipTanh),
    Row("vit_so400m_patch14_siglip", &[224, 378, 384], 14, SO400M, Siglip),
    Row("vit_so400m_patch16_siglip", &[256, 384, 512], 16, SO400M, SiglipTanh),
    Row("vit_giantopt_patch16_siglip", &[256, 384], 16, GIANT_OPT, SiglipTanh),
    Row("vit_base_patch32_siglip_gap", &[256], 32, BASE, GapTanh),
    Row("vit_base_patch16_siglip_gap", &[224, 256, 384, 512], 16, BASE, Gap),
    Row("vit_large_patch16_siglip_gap", &[256, 384], 16, LARGE, Gap),
    Row("vit_large_patch16_siglip_gap_512", &[], 16, LARGE, GapTanh),
    Row("vit_so400m_patch14_siglip_gap", &[224, 378, 384, 448, 896], 14, SO400M, Gap),
    Row("vit_so400m_patch16_siglip_gap", &[256, 384, 512], 16, SO400M, GapTanh),
    Row("vit_giantopt_patch16_siglip_gap", &[256, 384], 16, GIANT_OPT, GapTanh),
];

/// Iterates over the names of all architectures.
pub(super) fn names() -> impl Iterator<Item = String> {
    TABLE.iter().flat_map(|&Row(stem, sizes, ..)| {
        let plain = sizes.is_empty().then(|| stem.to_owned());
        plain
            .into_iter()
            .chain(sizes.iter().map(move |size| format!("{stem}_{size}")))
    })
}

/// Returns the arguments of `name`, or `None` if the architecture is not supported.
pub(super) fn lookup(name: &str) -> Option<Arguments> {
    let (stem, size) = match name.rsplit_once('_') {
        Some((stem, digits)) => (stem, digits.parse::<usize>().ok()),
        None => (name, None),
    };
    TABLE
        .iter()
        .find(|Row(row, sizes, ..)| {
            *row == name && sizes.is_empty() || *row == stem && size.is_some_and(|size| sizes.contains(&size))
        })
        .map(arguments)
}

fn arguments(&Row(_, _, patch, Size(embed_dim, depth, num_heads, mlp_ratio), style): &Row) -> Arguments {
    let plain = Arguments {
        patch_size: [patch, patch],
        embed_dim,
        depth,
        num_heads,
        mlp_ratio,
        ..Arguments::default()
    };
    let layer_scale = Arguments {
        layer_scale: true,
        ..plain.clone()
    };
    let gap = Arguments {
        class_token: false,
        global_pool: GlobalPool::Avg,
        fc_norm: Some(false),
        ..plain.clone()
    };
    let registers = |reg_tokens| Arguments {
        class_token: false,
        global_pool: GlobalPool::Avg,
        reg_tokens,
        ..layer_scale.clone()
    };
    let dinov2_registers = |reg_tokens| Arguments {
        reg_tokens,
        no_embed_class: true,
        ..layer_scale.clone()
    };
    let swiglu = |arguments| Arguments {
        mlp_layer: Gating::Packed,
        act_layer: Activation::Silu,
        ..arguments
    };
    let clip = Arguments {
        pre_norm: true,
        norm_layer: Norm::PYTORCH,
        ..plain.clone()
    };
    let siglip = Arguments {
        class_token: false,
        global_pool: GlobalPool::Map,
        ..plain.clone()
    };
    let radio = |reg_tokens| Arguments {
        reg_tokens,
        no_embed_class: true,
        final_norm: false,
        ..plain.clone()
    };
    let wee = Arguments {
        no_embed_class: true,
        ..registers(1)
    };
    let tanh = |arguments| Arguments {
        act_layer: Activation::GeluTanh,
        ..arguments
    };
    match style {
        Plain => plain,
        NoQkvBias => Arguments {
            qkv_bias: false,
            ..plain
        },
        LayerScale | Dinov2 => layer_scale,
        Average => Arguments {
            global_pool: GlobalPool::Avg,
            ..plain
        },
        Gap => gap,
        GapTanh => tanh(gap),
        GapNoQkvBias => Arguments {
            qkv_bias: false,
            layer_scale: true,
            ..gap
        },
        Registers(count) => Arguments {
            no_embed_class: true,
            ..registers(count)
        },
        RegistersUnscaled(count) => Arguments {
            no_embed_class: true,
            layer_scale: false,
            ..registers(count)
        },
        Intern => Arguments {
            final_norm: false,
            ..layer_scale
        },
        So150m => Arguments { reg_tokens: 4, ..gap },
        So150m2 => Arguments {
            qkv_bias: false,
            ..registers(1)
        },
        Test2 => registers(1),
        Test3 => Arguments {
            global_pool: GlobalPool::Map,
            pool_include_prefix: true,
            ..registers(1)
        },
        Dinov2Registers(count) => dinov2_registers(count),
        Dinov2SwiGlu => swiglu(layer_scale),
        Dinov2RegistersSwiGlu(count) => swiglu(dinov2_registers(count)),
        Clip => clip,
        ClipQuickGelu => Arguments {
            act_layer: Activation::QuickGelu,
            ..clip
        },
        Siglip => siglip,
        SiglipTanh => tanh(siglip),
        Deit3 => Arguments {
            no_embed_class: true,
            ..layer_scale
        },
        Distilled => Arguments {
            distilled: true,
            ..plain
        },
        Flexi => Arguments {
            no_embed_class: true,
            ..plain
        },
        Aim => Arguments {
            qkv_bias: false,
            proj_bias: false,
            norm_layer: RMS_NORM_AIM,
            embed_norm_layer: Some(RMS_NORM_AIM),
            mlp_layer: Gating::Separate,
            act_layer: Activation::Silu,
            ..gap
        },
        Beit3 => Arguments {
            scale_attn_norm: true,
            scale_mlp_norm: true,
            norm_layer: Norm::PYTORCH,
            global_pool: GlobalPool::Avg,
            ..plain
        },
        Test4 => Arguments {
            norm_layer: RMS_NORM,
            ..registers(1)
        },
        Scaled => Arguments {
            pre_norm: true,
            no_embed_class: true,
            qkv_bias: false,
            norm_layer: RMS_NORM,
            qk_norm: true,
            block_fn: BlockForm::Parallel,
            ..plain
        },
        Pairs => Arguments {
            block_fn: BlockForm::Pairs,
            ..layer_scale
        },
        PostNorm => Arguments {
            block_fn: BlockForm::PostNorm,
            qkv_bias: false,
            class_token: false,
            global_pool: GlobalPool::Avg,
            ..layer_scale
        },
        ParallelRegisters => Arguments {
            block_fn: BlockForm::Parallel,
            ..wee
        },
        DifferentialParallelRegisters => Arguments {
            block_fn: BlockForm::Parallel,
            differential_block: true,
            ..wee
        },
        DifferentialRegisters => Arguments {
            differential: true,
            ..wee
        },
        So150mMap => Arguments {
            class_token: false,
            reg_tokens: 4,
            global_pool: GlobalPool::Map,
            ..plain
        },
        Radio(count) => radio(count),
        RadioLayerScale(count) => Arguments {
            layer_scale: true,
            ..radio(count)
        },
    }
}
