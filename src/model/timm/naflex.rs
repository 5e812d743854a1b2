//! Reads timm's `NaFlexVit`, as timm runs it on images of one size. [`packing`](crate::model::packing) prepares it for
//! images of several aspect ratios in a batch.

use super::architectures::{Arguments as VitArguments, GlobalPool};
use super::arguments::{check_padding, set};
use super::config::{Config, truth};
use super::vision_transformer;
use crate::error::Result;
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::info::Family;
use crate::model::names;
use crate::model::positions::{Filter, Grid, GridTable};
use crate::model::vit::{Pooling, Positions, Vit};
use crate::ops::Activation;

/// Arguments that only affect training, or images of several grids in a batch.
const WITHOUT_EFFECT: &[&str] = &[
    "attn_drop_rate",
    "drop_path_rate",
    "drop_rate",
    "fix_init",
    "out_indices",
    "patch_drop_rate",
    "pos_drop_rate",
    "proj_drop_rate",
    "rope_grid_indexing",
    "rope_grid_offset",
    "rope_jitter_coords",
    "rope_ref_feat_shape",
    "rope_rescale_coords",
    "rope_shift_coords",
    "rope_temperature",
    "use_key_only_attn_mask",
    "weight_init",
];

/// Arguments that are not supported unless they are `false`, `null`, 0 or empty.
const MUST_BE_OFF: &[&str] = &[
    "attn_gated",
    "attn_only_layer_scale",
    "block_fn",
    "enable_patch_interpolator",
    "input_norm_layer",
    "mlp_layer",
    "num_kv_heads",
    "rope_mrope_section",
    "rope_rotate_half",
    "swiglu_align_to",
    "swiglu_mlp",
];

/// Arguments that [`apply`] and [`Config`] read.
pub(super) const APPLIED: &[&str] = &[
    "act_layer",
    "attn_layer",
    "attn_pool_mlp_ratio",
    "attn_pool_num_heads",
    "attn_type",
    "class_token",
    "depth",
    "dynamic_img_pad",
    "embed_dim",
    "embed_norm_layer",
    "embed_proj_type",
    "fc_norm",
    "final_norm",
    "global_pool",
    "img_size",
    "in_chans",
    "init_values",
    "mlp_ratio",
    "norm_layer",
    "num_classes",
    "num_heads",
    "patch_size",
    "patchify_channels_last",
    "pool_include_prefix",
    "pos_embed",
    "pos_embed_align_corners",
    "pos_embed_antialias",
    "pos_embed_ar_preserving",
    "pos_embed_grid_size",
    "pos_embed_interp_mode",
    "pos_embed_use_grid_sample",
    "pre_norm",
    "proj_bias",
    "qk_norm",
    "qkv_bias",
    "qkv_fused",
    "reg_tokens",
    "rope_type",
    "scale_attn_inner_norm",
    "scale_mlp_norm",
];

/// Arguments of timm's `NaFlexVitCfg` that affect inference.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) vit: VitArguments,
    /// `pos_embed_grid_size`. Without it, the grid is that of `img_size`.
    pub(super) grid: Option<Grid>,
    pub(super) positions: Form,
    /// True if `pos_embed_interp_mode` is `"bicubic"`, false if it is `"bilinear"`.
    pub(super) cubic: bool,
    pub(super) antialias: bool,
    pub(super) align_corners: bool,
    pub(super) keeps_aspect: bool,
    pub(super) attn_pool_num_heads: Option<usize>,
    pub(super) attn_pool_mlp_ratio: Option<f64>,
}

/// timm's `pos_embed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    None,
    Learned,
    Factorized,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            vit: VitArguments {
                class_token: false,
                global_pool: GlobalPool::Map,
                no_embed_class: true,
                ..VitArguments::default()
            },
            grid: Some([16, 16]),
            positions: Form::Learned,
            cubic: true,
            antialias: true,
            align_corners: false,
            keeps_aspect: false,
            attn_pool_num_heads: None,
            attn_pool_mlp_ratio: None,
        }
    }
}

/// Channels, depth, heads, and ratio of the feed-forward network's width.
type Size = (usize, usize, usize, f64);

const BASE: Size = (768, 12, 12, 4.0);
const LARGE: Size = (1024, 24, 16, 4.0);
const HUGE: Size = (1280, 32, 16, 4.0);
const GIANT: Size = (1536, 40, 24, 4.0);
const SO150M2: Size = (832, 21, 13, 34.0 / 13.0);
const SO400M: Size = (1152, 27, 16, 3.7362);
const SO400M_RADIO: Size = (1152, 27, 16, 4304.0 / 1152.0);

/// What distinguishes architectures besides their size.
#[derive(Clone, Copy)]
enum Style {
    Gap,
    GapKeepsAspect,
    GapFactorized,
    Map,
    So150m2Gap,
    So150m2Map,
    Siglip,
    /// RADIO, with its number of registers.
    Radio(usize),
    /// RADIO with LayerScale.
    RadioScaled(usize),
    RadioAligned(usize),
    RadioScaledAligned(usize),
}

/// A test compares the table with timm's own registry.
const TABLE: &[(&str, Size, Style)] = &[
    ("naflexvit_base_patch16_gap", BASE, Style::Gap),
    ("naflexvit_base_patch16_par_gap", BASE, Style::GapKeepsAspect),
    ("naflexvit_base_patch16_parfac_gap", BASE, Style::GapFactorized),
    ("naflexvit_base_patch16_map", BASE, Style::Map),
    ("naflexvit_so150m2_patch16_reg1_gap", SO150M2, Style::So150m2Gap),
    ("naflexvit_so150m2_patch16_reg1_map", SO150M2, Style::So150m2Map),
    ("naflexvit_base_patch16_siglip", BASE, Style::Siglip),
    ("naflexvit_so400m_patch16_siglip", SO400M, Style::Siglip),
    (
        "naflexvit_base_patch16_radio_v3",
        BASE,
        Style::RadioScaledAligned(7),
    ),
    ("naflexvit_large_patch16_radio_v3", LARGE, Style::RadioScaled(7)),
    ("naflexvit_huge_patch16_radio_v3", HUGE, Style::RadioAligned(7)),
    ("naflexvit_giant_patch16_radio_v3", GIANT, Style::Radio(7)),
    ("naflexvit_so400m_patch16_radio_v4", SO400M_RADIO, Style::Radio(9)),
    ("naflexvit_huge_patch16_radio_v4", HUGE, Style::Radio(9)),
];

/// Iterates over the names of all architectures.
pub(super) fn all() -> impl Iterator<Item = String> {
    TABLE.iter().map(|row| row.0.to_owned())
}

/// Returns the arguments of `name`, or `None` if it is not one of these architectures.
pub(super) fn lookup(name: &str) -> Option<Arguments> {
    let &(_, (embed_dim, depth, num_heads, mlp_ratio), style) = TABLE.iter().find(|row| row.0 == name)?;
    let plain = Arguments::default();
    let sized = VitArguments {
        embed_dim,
        depth,
        num_heads,
        mlp_ratio,
        ..plain.vit.clone()
    };
    let gap = |reg_tokens| VitArguments {
        layer_scale: true,
        global_pool: GlobalPool::Avg,
        reg_tokens,
        fc_norm: Some(true),
        ..sized.clone()
    };
    let radio = |reg_tokens, layer_scale, align_corners| Arguments {
        vit: VitArguments {
            class_token: true,
            reg_tokens,
            global_pool: GlobalPool::Token,
            final_norm: false,
            layer_scale,
            ..sized.clone()
        },
        grid: Some([128, 128]),
        cubic: false,
        antialias: false,
        align_corners,
        keeps_aspect: true,
        ..plain.clone()
    };
    let of = |vit| Arguments { vit, ..plain.clone() };
    Some(match style {
        Style::Gap => of(gap(4)),
        Style::GapKeepsAspect => Arguments {
            keeps_aspect: true,
            ..of(gap(4))
        },
        Style::GapFactorized => Arguments {
            keeps_aspect: true,
            positions: Form::Factorized,
            ..of(gap(4))
        },
        Style::Map => of(VitArguments {
            layer_scale: true,
            reg_tokens: 1,
            ..sized
        }),
        Style::So150m2Gap => of(VitArguments {
            qkv_bias: false,
            ..gap(1)
        }),
        Style::So150m2Map => of(VitArguments {
            qkv_bias: false,
            reg_tokens: 1,
            layer_scale: true,
            ..sized
        }),
        Style::Siglip => Arguments {
            cubic: false,
            ..of(VitArguments {
                act_layer: Activation::GeluTanh,
                ..sized
            })
        },
        Style::Radio(registers) => radio(registers, false, false),
        Style::RadioScaled(registers) => radio(registers, true, false),
        Style::RadioAligned(registers) => radio(registers, false, true),
        Style::RadioScaledAligned(registers) => radio(registers, true, true),
    })
}

/// Describes a model of this class. The arguments are those of [`super::describe`].
pub(super) fn describe(
    config: Config<'_>,
    name: &str,
    mut arguments: Arguments,
    image_size: Option<Grid>,
) -> Result<Description> {
    config.check_arguments(APPLIED, WITHOUT_EFFECT, MUST_BE_OFF)?;
    apply(config.given, &mut arguments)?;
    let image = image_size.unwrap_or(config.sizes(None, true)?.image);
    let classes = config.classes()?;
    let positions = positions(config, &arguments)?;
    // The class resolves the default differently from timm's `VisionTransformer`.
    let vit = &mut arguments.vit;
    vit.fc_norm = Some(vit.fc_norm.unwrap_or(vit.global_pool == GlobalPool::Avg));
    let vit = vision_transformer::assemble(config, vit, None, image, classes.count)?;
    let pooling = match vit.pooling {
        Pooling::Attention { skip, activation, .. } => {
            let ratio = arguments.attn_pool_mlp_ratio.unwrap_or(arguments.vit.mlp_ratio);
            Pooling::Attention {
                skip,
                heads: arguments.attn_pool_num_heads.unwrap_or(vit.heads),
                hidden: (vit.dim as f64 * ratio) as usize,
                activation,
            }
        }
        other => other,
    };
    let vit = Vit {
        positions: positions.map(Positions::Grid),
        pooling,
        ..vit
    };
    check_padding(config, &vit)?;
    let family = if name.contains("siglip") {
        Family::Siglip
    } else {
        Family::Vit
    };
    config.description(name, family, &names::NAFLEX, vit, classes, &[])
}

/// Returns the stored positions and how they are resampled.
fn positions(config: Config<'_>, arguments: &Arguments) -> Result<Option<GridTable>> {
    if arguments.positions == Form::None {
        return Ok(None);
    }
    let stored = match arguments.grid {
        Some(grid) => Some(grid),
        None => config.given.extent("img_size")?.map(|size| {
            let patch = arguments.vit.patch_size;
            [0, 1].map(|axis| size[axis] / patch[axis])
        }),
    };
    let key = "pos_embed_grid_size";
    let missing = || config.given.error(key, "is null, and there is no `img_size`");
    let is_factorized = arguments.positions == Form::Factorized;
    let filter = match (arguments.cubic, arguments.antialias, arguments.align_corners) {
        // timm ignores the three arguments for factorized positions.
        _ if is_factorized => Filter::Linear,
        (true, true, false) => Filter::CubicAntialiased,
        (true, false, false) => Filter::Cubic,
        (false, true, false) => Filter::LinearAntialiased,
        (false, false, false) => Filter::Linear,
        (false, false, true) => Filter::LinearAligned,
        (_, _, true) => {
            let reason = "is supported with \"bilinear\" and without `pos_embed_antialias` only";
            return Err(config.given.error("pos_embed_align_corners", reason));
        }
    };
    Ok(Some(GridTable {
        stored: stored.ok_or_else(missing)?,
        is_factorized,
        keeps_aspect: arguments.keeps_aspect,
        is_sampled: truth(config.given, "pos_embed_use_grid_sample") == Some(true),
        filter,
    }))
}

/// Replaces the architecture's arguments by the given ones.
pub(super) fn apply(given: Fields<'_>, arguments: &mut Arguments) -> Result<()> {
    vision_transformer::apply(given, &mut arguments.vit)?;
    let a = arguments;
    set(&mut a.vit.scale_attn_norm, truth(given, "scale_attn_inner_norm"));
    set(&mut a.antialias, truth(given, "pos_embed_antialias"));
    set(&mut a.align_corners, truth(given, "pos_embed_align_corners"));
    set(&mut a.keeps_aspect, truth(given, "pos_embed_ar_preserving"));
    if given.has("pos_embed_grid_size") {
        a.grid = given.extent("pos_embed_grid_size")?;
    }
    if given.has("attn_pool_num_heads") {
        a.attn_pool_num_heads = given.size("attn_pool_num_heads")?;
    }
    if given.has("attn_pool_mlp_ratio") {
        a.attn_pool_mlp_ratio = given.ratio("attn_pool_mlp_ratio")?;
    }
    let choice = |key, choices: &[&str]| match given.text(key)? {
        None => Ok(None),
        Some(text) => match choices.iter().position(|choice| *choice == text) {
            Some(index) => Ok(Some(index)),
            None => {
                let listed: Vec<_> = choices.iter().map(|choice| format!("\"{choice}\"")).collect();
                let reason = format_args!("is \"{text}\"; supported: {}", listed.join(", "));
                Err(given.error(key, reason))
            }
        },
    };
    let forms = choice("pos_embed", &["", "none", "learned", "factorized"])?;
    set(
        &mut a.positions,
        forms.map(|form| [Form::None, Form::None, Form::Learned, Form::Factorized][form]),
    );
    let cubic = choice("pos_embed_interp_mode", &["bilinear", "bicubic"])?;
    set(&mut a.cubic, cubic.map(|index| index == 1));
    choice("attn_type", &["", "standard"])?;
    choice("rope_type", &["", "none"])?;
    choice("embed_proj_type", &["linear"])?;
    for key in ["qkv_fused", "patchify_channels_last"] {
        if truth(given, key) == Some(false) {
            return Err(given.error(key, "is false, which is not supported"));
        }
    }
    Ok(())
}
