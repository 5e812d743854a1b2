//! Reads timm's `SwinTransformer` and `SwinTransformerV2`.

use serde_json::Value;

use super::architectures::GlobalPool;
use super::arguments::{global_pool, set};
use super::config::{Config, check_channels, truth};
use crate::error::Result;
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::hierarchy::Hierarchy;
use crate::model::info::Family;
use crate::model::invalid::Invalid;
use crate::model::names;
use crate::model::norm::Norm;
use crate::model::positions::{Filter, Grid};
use crate::model::relative::TableFitting;
use crate::model::swin::{Stage, Swin, Version, grids};
use crate::model::vit::{BlockForm, Blocks, Mlp, Neck, Pooling, Vit};
use crate::ops::Activation;

/// Arguments that only affect training.
const WITHOUT_EFFECT: &[&str] = &[
    "attn_drop_rate",
    "drop_path_rate",
    "drop_rate",
    "out_indices",
    "proj_drop_rate",
    "weight_init",
];

/// Arguments that [`apply`] and [`Config`] read.
pub(super) const APPLIED: &[&str] = &[
    "always_partition",
    "depths",
    "dynamic_img_size",
    "embed_dim",
    "global_pool",
    "img_size",
    "in_chans",
    "mlp_ratio",
    "num_classes",
    "num_heads",
    "patch_size",
    "pretrained_window_sizes",
    "qkv_bias",
    "strict_img_size",
    "window_size",
];

/// Arguments that are not supported unless they are `false` or `null`.
const MUST_BE_OFF: &[&str] = &["head_dim"];

/// Arguments of the two classes that affect inference, by timm's names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) version: Version,
    pub(super) patch_size: [usize; 2],
    pub(super) embed_dim: usize,
    pub(super) depths: Vec<usize>,
    pub(super) num_heads: Vec<usize>,
    pub(super) window_size: Windows,
    /// 0 for a stage that was not trained with other windows.
    pub(super) pretrained_window_sizes: Vec<[usize; 2]>,
    pub(super) always_partition: bool,
    pub(super) mlp_ratio: f64,
    pub(super) qkv_bias: bool,
    pub(super) global_pool: GlobalPool,
}

/// Rows and columns of the windows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Windows {
    Every([usize; 2]),
    OfStages(Vec<[usize; 2]>),
}

/// Channels and heads of the first stage.
type Width = (usize, usize);

const TINY: Width = (96, 3);
const BASE: Width = (128, 4);
const LARGE: Width = (192, 6);

/// Name, version, channels and heads of the first stage, depth of the third stage, window, and window of the
/// pre-training if it is another. A test compares the table with timm's own registry.
const TABLE: &[(&str, Version, Width, usize, usize, usize)] = &[
    ("swin_tiny_patch4_window7_224", Version::V1, TINY, 6, 7, 0),
    ("swin_small_patch4_window7_224", Version::V1, TINY, 18, 7, 0),
    ("swin_base_patch4_window7_224", Version::V1, BASE, 18, 7, 0),
    ("swin_base_patch4_window12_384", Version::V1, BASE, 18, 12, 0),
    ("swin_large_patch4_window7_224", Version::V1, LARGE, 18, 7, 0),
    ("swin_large_patch4_window12_384", Version::V1, LARGE, 18, 12, 0),
    ("swin_s3_tiny_224", Version::V1, TINY, 6, 0, 0),
    ("swin_s3_small_224", Version::V1, TINY, 18, 0, 0),
    ("swin_s3_base_224", Version::V1, TINY, 30, 0, 0),
    ("swinv2_tiny_window16_256", Version::V2, TINY, 6, 16, 0),
    ("swinv2_tiny_window8_256", Version::V2, TINY, 6, 8, 0),
    ("swinv2_small_window16_256", Version::V2, TINY, 18, 16, 0),
    ("swinv2_small_window8_256", Version::V2, TINY, 18, 8, 0),
    ("swinv2_base_window16_256", Version::V2, BASE, 18, 16, 0),
    ("swinv2_base_window8_256", Version::V2, BASE, 18, 8, 0),
    ("swinv2_base_window12_192", Version::V2, BASE, 18, 12, 0),
    ("swinv2_base_window12to16_192to256", Version::V2, BASE, 18, 16, 12),
    ("swinv2_base_window12to24_192to384", Version::V2, BASE, 18, 24, 12),
    ("swinv2_large_window12_192", Version::V2, LARGE, 18, 12, 0),
    (
        "swinv2_large_window12to16_192to256",
        Version::V2,
        LARGE,
        18,
        16,
        12,
    ),
    (
        "swinv2_large_window12to24_192to384",
        Version::V2,
        LARGE,
        18,
        24,
        12,
    ),
];

/// Iterates over the names of all architectures.
pub(super) fn all() -> impl Iterator<Item = String> {
    TABLE.iter().map(|row| row.0.to_owned())
}

/// Returns the arguments of `name`, or `None` if it is not one of these architectures.
pub(super) fn lookup(name: &str) -> Option<Arguments> {
    let &(name, version, (embed_dim, heads), third, window, trained) =
        TABLE.iter().find(|row| row.0 == name)?;
    let window_size = match (window, name) {
        // The windows of S3 were searched, https://arxiv.org/abs/2111.14725.
        (0, "swin_s3_small_224") => Windows::OfStages([14, 14, 14, 7].map(|n| [n, n]).to_vec()),
        (0, _) => Windows::OfStages([7, 7, 14, 7].map(|n| [n, n]).to_vec()),
        _ => Windows::Every([window; 2]),
    };
    Some(Arguments {
        version,
        patch_size: [4, 4],
        embed_dim,
        depths: vec![2, 2, third, 2],
        num_heads: [1, 2, 4, 8].map(|n| n * heads).to_vec(),
        window_size,
        // The windows of the last stage were half as large.
        pretrained_window_sizes: [trained, trained, trained, trained / 2].map(|n| [n, n]).to_vec(),
        always_partition: false,
        mlp_ratio: 4.0,
        qkv_bias: true,
        global_pool: GlobalPool::Avg,
    })
}

/// Describes a model of these classes. The arguments are those of [`super::describe`].
pub(super) fn describe(
    config: Config<'_>,
    name: &str,
    mut arguments: Arguments,
    image_size: Option<[usize; 2]>,
) -> Result<Description> {
    config.check_arguments(APPLIED, WITHOUT_EFFECT, MUST_BE_OFF)?;
    apply(config.given, &mut arguments)?;
    let sizes = config.sizes(None, false)?;
    let image = image_size.unwrap_or(sizes.image);
    // The windows depend on the size for which timm creates the model.
    let dynamic = truth(config.given, "dynamic_img_size") == Some(true);
    let created = if dynamic { sizes.model } else { image };
    let classes = config.classes()?;
    let vit = assemble(&arguments, image, created, classes.count);
    let vit = vit.map_err(|reason| config.error(reason))?;
    let buffer = "timm computes this buffer and skips the stored one";
    let ignored =
        ["*relative_position_index", "*relative_coords_table", "*attn_mask"].map(|name| (name, buffer));
    config.description(name, Family::Swin, &names::SWIN_TIMM, vit, classes, &ignored)
}

/// Replaces the architecture's arguments by the given ones.
pub(super) fn apply(given: Fields<'_>, arguments: &mut Arguments) -> Result<()> {
    check_channels(given)?;
    let a = arguments;
    set(&mut a.patch_size, given.extent("patch_size")?);
    set(&mut a.embed_dim, given.size("embed_dim")?);
    set(&mut a.depths, given.sizes("depths")?);
    set(&mut a.num_heads, given.sizes("num_heads")?);
    set(&mut a.window_size, windows(given)?);
    set(&mut a.mlp_ratio, given.ratio("mlp_ratio")?);
    set(&mut a.qkv_bias, truth(given, "qkv_bias"));
    set(&mut a.always_partition, truth(given, "always_partition"));
    set(&mut a.global_pool, global_pool(given)?);
    if a.version == Version::V2 {
        let key = "pretrained_window_sizes";
        if let Some(Value::Array(list)) = given.get(key) {
            a.pretrained_window_sizes = pairs(given, key, list, 0)?;
        }
    } else if given.has("pretrained_window_sizes") {
        return Err(given.error("pretrained_window_sizes", "is an argument of Swin V2 only"));
    }
    if truth(given, "strict_img_size") == Some(false) && truth(given, "dynamic_img_size") != Some(true) {
        let reason = "is false, which is only supported as `dynamic_img_size`: true";
        return Err(given.error("strict_img_size", reason));
    }
    Ok(())
}

/// Reads the windows: a number or a pair for all stages, or a list with one for each stage.
fn windows(given: Fields<'_>) -> Result<Option<Windows>> {
    let key = "window_size";
    match given.get(key) {
        Some(Value::Array(list)) if list.len() != 2 || list[0].is_array() => {
            Ok(Some(Windows::OfStages(pairs(given, key, list, 1)?)))
        }
        _ => Ok(given.extent(key)?.map(Windows::Every)),
    }
}

/// Reads a list of numbers and pairs of at least `least`.
fn pairs(given: Fields<'_>, key: &str, list: &[Value], least: u64) -> Result<Vec<[usize; 2]>> {
    let size = |value: &Value| match value.as_u64() {
        Some(size) if (least..=0xffff).contains(&size) => Some(size as usize),
        _ => None,
    };
    let pair = |value: &Value| match value.as_array().map(Vec::as_slice) {
        Some([rows, columns]) => Some([size(rows)?, size(columns)?]),
        Some(_) => None,
        None => size(value).map(|size| [size; 2]),
    };
    let all: Option<Vec<_>> = list.iter().map(pair).collect();
    all.ok_or_else(|| {
        given.unexpected(
            key,
            &Value::Array(list.to_vec()),
            "one number or pair for each stage",
        )
    })
}

/// Describes the model for images of the size `image`. timm creates it for the size `created`.
fn assemble(a: &Arguments, image: Grid, created: Grid, classes: usize) -> Result<Vit, Invalid> {
    let patches = |size: Grid| [0, 1].map(|axis| size[axis] / a.patch_size[axis]);
    let (first, reference) = (patches(image), patches(created));
    if first.contains(&0) || reference.contains(&0) {
        return Err(format!(
            "an image of {}×{} has no patch of {}×{}",
            image[0], image[1], a.patch_size[0], a.patch_size[1]
        )
        .into());
    }
    let count = a.depths.len();
    let windows = match &a.window_size {
        Windows::Every(window) => vec![*window; count],
        Windows::OfStages(windows) => windows.clone(),
    };
    let lengths = [a.num_heads.len(), windows.len()];
    if lengths.iter().any(|&length| length != count) || count == 0 || count > 16 {
        return Err("`depths`, `num_heads` and `window_size` have different numbers of stages".into());
    }
    if a.version == Version::V2 && a.pretrained_window_sizes.len() < count {
        return Err("`pretrained_window_sizes` has fewer numbers than there are stages".into());
    }
    let stages = grids(first, count).zip(grids(reference, count)).enumerate();
    let stages: Vec<Stage> = stages
        .map(|(index, (grid, reference))| {
            let target = windows[index];
            let mut window = target;
            let mut shift = target.map(|n| n / 2);
            if !a.always_partition {
                for axis in 0..2 {
                    window[axis] = target[axis].min(reference[axis]);
                    if reference[axis] <= window[axis] {
                        shift[axis] = 0;
                    }
                }
            }
            let dim = a.embed_dim << index;
            Stage {
                dim,
                depth: a.depths[index],
                heads: a.num_heads[index],
                hidden: (dim as f64 * a.mlp_ratio) as usize,
                grid,
                window,
                shift,
                // timm rolls the grid before it pads it.
                rolled: grid,
                trained_window: a.pretrained_window_sizes.get(index).copied().unwrap_or_default(),
            }
        })
        .collect();
    let last = stages.last().ok_or("the model has no stages")?;
    let pooling = match a.global_pool {
        GlobalPool::Avg => Pooling::Mean { skip: 0 },
        GlobalPool::Max => Pooling::Max { skip: 0 },
        GlobalPool::AvgMax => Pooling::MeanAndMax { skip: 0 },
        _ => return Err("`global_pool` of this architecture is \"avg\", \"max\" or \"avgmax\"".into()),
    };
    Ok(Vit {
        image,
        patch: a.patch_size,
        patch_filter: Some(Filter::CubicAntialiased),
        dim: last.dim,
        depth: a.depths.iter().sum(),
        heads: last.heads,
        kv_heads: None,
        hidden: last.hidden,
        mlp: Mlp::Plain(Activation::GeluErf),
        norms: Norm::PYTORCH,
        patch_norm: Some(Norm::PYTORCH),
        blocks: Blocks {
            form: match a.version {
                Version::V1 => BlockForm::PreNorm,
                Version::V2 => BlockForm::PostNorm,
            },
            ..Blocks::default()
        },
        patch_bias: true,
        class_token: false,
        distillation_token: false,
        registers: 0,
        positions: None,
        rotary: None,
        hierarchy: Some(Hierarchy::Swin(Swin {
            version: a.version,
            stages,
            merging_norm: Norm::PYTORCH,
            fitting: Some(TableFitting::Timm),
            merges_after: false,
        })),
        relative: None,
        pre_norm: false,
        qkv_bias: match a.version {
            Version::V1 => [a.qkv_bias; 3],
            Version::V2 => [a.qkv_bias, false, a.qkv_bias],
        },
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [false; 2],
        norm: true,
        pooling,
        pooled_norm: false,
        neck: Neck::None,
        classes,
    })
}
