//! Reads timm's `Hiera`.

use serde_json::Value;

use super::architectures::{GlobalPool, LAYER_NORM};
use super::arguments::{global_pool, norm, set};
use super::config::{Config, check_channels, truth};
use crate::error::{Error, Result};
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::hiera::{Hiera, KERNEL, PADDING, POOL, Stage};
use crate::model::hierarchy::Hierarchy;
use crate::model::info::Family;
use crate::model::invalid::Invalid;
use crate::model::names;
use crate::model::norm::Norm;
use crate::model::positions::Grid;
use crate::model::stage_sizes::StageSizes;
use crate::model::vit::{Blocks, Mlp, Neck, Pooling, Vit};
use crate::ops::Activation;

/// Pixels between patches, down and across.
const STRIDE: [usize; 2] = [4, 4];

/// Rows and columns of tokens of a window of the first stage: those that pooling reduces to one token.
const WINDOW: Grid = [8, 8];

const STAGES: usize = 4;

/// Stages that attend inside of windows.
const WINDOWED: [bool; STAGES] = [true, true, false, false];

/// Arguments that only affect training.
const WITHOUT_EFFECT: &[&str] = &[
    "drop_path_rate",
    "drop_rate",
    "fix_init",
    "head_init_scale",
    "out_indices",
    "patch_drop_rate",
    "weight_init",
];

/// Arguments that [`apply`] and [`Config`] read.
pub(super) const APPLIED: &[&str] = &[
    "abs_win_pos_embed",
    "dim_mul",
    "embed_dim",
    "global_pool",
    "global_pos_size",
    "head_mul",
    "img_size",
    "in_chans",
    "init_values",
    "mask_unit_attn",
    "mask_unit_size",
    "mlp_ratio",
    "norm_layer",
    "num_classes",
    "num_heads",
    "patch_kernel",
    "patch_padding",
    "patch_stride",
    "q_pool",
    "q_stride",
    "stages",
    "use_expand_proj",
];

/// Arguments that are not supported unless they are `false` or `null`.
const MUST_BE_OFF: &[&str] = &["sep_pos_embed"];

/// Arguments of timm's `Hiera` that affect inference, by timm's names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) embed_dim: usize,
    pub(super) num_heads: usize,
    pub(super) stages: Vec<usize>,
    pub(super) mlp_ratio: f64,
    /// True if `init_values` is set, which enables LayerScale.
    pub(super) layer_scale: bool,
    pub(super) use_expand_proj: bool,
    pub(super) abs_win_pos_embed: bool,
    pub(super) global_pos_size: Grid,
    pub(super) norm_layer: Norm,
    pub(super) global_pool: GlobalPool,
}

/// Differences of the architectures beside their sizes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// A position for each token.
    Plain,
    /// Positions of windows, and LayerScale.
    AbsWin,
    /// `AbsWin` with residuals whose channels pooling doubles, not a linear layer.
    Pooled,
}

/// Name, channels, heads, depths of the stages. A test compares the table with timm's own registry.
const TABLE: &[(&str, usize, usize, [usize; STAGES], Variant)] = &[
    ("hiera_tiny_224", 96, 1, [1, 2, 7, 2], Variant::Plain),
    ("hiera_small_224", 96, 1, [1, 2, 11, 2], Variant::Plain),
    ("hiera_base_224", 96, 1, [2, 3, 16, 3], Variant::Plain),
    ("hiera_base_plus_224", 112, 2, [2, 3, 16, 3], Variant::Plain),
    ("hiera_large_224", 144, 2, [2, 6, 36, 4], Variant::Plain),
    ("hiera_huge_224", 256, 4, [2, 6, 36, 4], Variant::Plain),
    ("hiera_small_abswin_256", 96, 1, [1, 2, 11, 2], Variant::Pooled),
    ("hiera_base_abswin_256", 96, 1, [2, 3, 16, 3], Variant::AbsWin),
];

/// Iterates over the names of all architectures.
pub(super) fn all() -> impl Iterator<Item = String> {
    TABLE.iter().map(|row| row.0.to_owned())
}

/// Returns the arguments of `name`, or `None` if it is not one of these architectures.
pub(super) fn lookup(name: &str) -> Option<Arguments> {
    let &(_, embed_dim, num_heads, stages, variant) = TABLE.iter().find(|row| row.0 == name)?;
    let pools = variant == Variant::Pooled;
    Some(Arguments {
        embed_dim,
        num_heads,
        stages: stages.to_vec(),
        mlp_ratio: 4.0,
        layer_scale: variant != Variant::Plain,
        use_expand_proj: !pools,
        abs_win_pos_embed: variant != Variant::Plain,
        global_pos_size: if pools { [16; 2] } else { [14; 2] },
        norm_layer: LAYER_NORM,
        global_pool: GlobalPool::Avg,
    })
}

/// Describes a model of this class. The arguments are those of [`super::describe`].
pub(super) fn describe(
    config: Config<'_>,
    name: &str,
    mut arguments: Arguments,
    image_size: Option<[usize; 2]>,
) -> Result<Description> {
    config.check_arguments(APPLIED, WITHOUT_EFFECT, MUST_BE_OFF)?;
    apply(config.given, &mut arguments)?;
    let own = config.sizes(None, false)?.model;
    let image = image_size.unwrap_or(own);
    let tokens = |size: [usize; 2]| size[0] / STRIDE[0] * (size[1] / STRIDE[1]);
    if !arguments.abs_win_pos_embed && tokens(image) != tokens(own) {
        let reason = format!(
            "{}×{} pixels are {} tokens, but {name} has positions for {}, and timm does not interpolate them: use {}×{}, or a model with abswin in its name",
            image[0],
            image[1],
            tokens(image),
            tokens(own),
            own[0],
            own[1]
        );
        return Err(Error::argument("image size", reason));
    }
    if let Err(reason) = check_windows(image) {
        return Err(if image_size.is_some() {
            Error::argument("image size", reason)
        } else {
            config.error(reason)
        });
    }
    let classes = config.classes()?;
    let vit = assemble(&arguments, image, classes.count);
    let vit = vit.map_err(|reason| config.error(reason))?;
    config.description(name, Family::Hiera, &names::HIERA, vit, classes, &[])
}

/// Replaces the architecture's arguments by the given ones.
pub(super) fn apply(given: Fields<'_>, arguments: &mut Arguments) -> Result<()> {
    check_channels(given)?;
    for (key, only) in [
        ("patch_kernel", Value::from(KERNEL.to_vec())),
        ("patch_stride", Value::from(STRIDE.to_vec())),
        ("patch_padding", Value::from(vec![PADDING; 2])),
        ("q_pool", Value::from(STAGES - 1)),
        ("q_stride", Value::from(POOL.to_vec())),
        ("mask_unit_size", Value::from(WINDOW.to_vec())),
        ("mask_unit_attn", Value::from(WINDOWED.to_vec())),
        ("dim_mul", Value::from(2.0)),
        ("head_mul", Value::from(2.0)),
    ] {
        // An integer equals a float of its value.
        let is_other =
            |value: &&Value| **value != only && (value.as_f64().is_none() || value.as_f64() != only.as_f64());
        if let Some(value) = given.get(key).filter(is_other) {
            return Err(given.unexpected(key, value, &format!("{only}: nothing else is supported")));
        }
    }
    let a = arguments;
    set(&mut a.embed_dim, given.size("embed_dim")?);
    set(&mut a.num_heads, given.size("num_heads")?);
    set(&mut a.stages, given.sizes("stages")?);
    set(&mut a.mlp_ratio, given.ratio("mlp_ratio")?);
    if given.has("init_values") {
        // Unlike most of timm's classes, this one enables LayerScale for 0 too.
        a.layer_scale = given.get("init_values").is_some();
    }
    set(&mut a.use_expand_proj, truth(given, "use_expand_proj"));
    set(&mut a.abs_win_pos_embed, truth(given, "abs_win_pos_embed"));
    set(&mut a.global_pos_size, given.extent("global_pos_size")?);
    set(&mut a.norm_layer, norm(given, "norm_layer")?);
    set(&mut a.global_pool, global_pool(given)?);
    Ok(())
}

/// Returns an error if the image is not divided into windows.
fn check_windows(image: [usize; 2]) -> Result<(), Invalid> {
    let [height, width] = [0, 1].map(|axis| STRIDE[axis] * WINDOW[axis]);
    if image[0].is_multiple_of(height) && image[1].is_multiple_of(width) {
        return Ok(());
    }
    Err(format!(
        "an image of {}×{} is not divided into windows of {height}×{width} pixels: use, for example, {}×{}",
        image[0],
        image[1],
        image[0].next_multiple_of(height),
        image[1].next_multiple_of(width)
    )
    .into())
}

fn assemble(a: &Arguments, image: [usize; 2], classes: usize) -> Result<Vit, Invalid> {
    if a.stages.len() != STAGES {
        return Err(format!("`stages` has {} numbers, expected {STAGES}", a.stages.len()).into());
    }
    let stages: Vec<Stage> = a
        .stages
        .iter()
        .zip(WINDOWED)
        .enumerate()
        .map(|(index, (&depth, is_windowed))| {
            let dim = a.embed_dim << index;
            Stage {
                sizes: StageSizes {
                    dim,
                    depth,
                    heads: a.num_heads << index,
                    hidden: (dim as f64 * a.mlp_ratio) as usize,
                },
                grid: [0, 1].map(|axis| (image[axis] / STRIDE[axis]) >> index),
                window: WINDOW.map(|n| n >> index),
                is_windowed,
            }
        })
        .collect();
    let last = stages.last().ok_or("the model has no stages")?.sizes;
    Ok(Vit {
        image,
        patch: STRIDE,
        patch_filter: None,
        dim: last.dim,
        depth: a.stages.iter().sum(),
        heads: last.heads,
        kv_heads: None,
        hidden: last.hidden,
        mlp: Mlp::Plain(Activation::GeluErf),
        norms: a.norm_layer,
        patch_norm: None,
        blocks: Blocks::default(),
        patch_bias: true,
        class_token: false,
        distillation_token: false,
        registers: 0,
        // The builder of the stages adds them.
        positions: None,
        rotary: None,
        hierarchy: Some(Hierarchy::Hiera(Hiera {
            stages,
            expands: a.use_expand_proj,
            position_grid: a.abs_win_pos_embed.then_some(a.global_pos_size),
        })),
        relative: None,
        pre_norm: false,
        qkv_bias: [true; 3],
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [a.layer_scale; 2],
        norm: false,
        pooling: match a.global_pool {
            GlobalPool::Avg => Pooling::Mean { skip: 0 },
            GlobalPool::Max => Pooling::Max { skip: 0 },
            GlobalPool::AvgMax => Pooling::MeanAndMax { skip: 0 },
            _ => return Err("`global_pool` of this architecture is \"avg\", \"max\" or \"avgmax\"".into()),
        },
        pooled_norm: true,
        neck: Neck::None,
        classes,
    })
}
