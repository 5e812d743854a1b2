//! Reads timm's `Beit`: BEiT and BEiT v2, which are ViTs with a bias of attention by relative position.

use super::architectures::{BASE, EPSILON, GlobalPool, LARGE, Size};
use super::arguments::{PATCH, global_pool, norm, set};
use super::config::{Config, check_channels, stored_grid, truth};
use crate::error::Result;
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::info::Family;
use crate::model::invalid::Invalid;
use crate::model::names;
use crate::model::norm::{Norm, NormKind};
use crate::model::positions::{Filter, Fitting};
use crate::model::relative::{RelativePositions, TableFitting};
use crate::model::vit::{BlockForm, Blocks, Mlp, Neck, Pooling, Positions, Vit};
use crate::model::weights::Weights;
use crate::ops::Activation;
use hipvit_files::json::is_true;

/// Arguments that only affect training.
const WITHOUT_EFFECT: &[&str] = &[
    "attn_drop_rate",
    "drop_path_rate",
    "drop_rate",
    "head_init_scale",
    "out_indices",
    "pos_drop_rate",
    "proj_drop_rate",
];

/// Arguments that [`apply`] and [`Config`] read.
const APPLIED: &[&str] = &[
    "depth",
    "embed_dim",
    "global_pool",
    "img_size",
    "in_chans",
    "init_values",
    "mlp_ratio",
    "norm_layer",
    "num_classes",
    "num_heads",
    "patch_size",
    "qkv_bias",
    "scale_mlp",
    "swiglu_mlp",
    "use_abs_pos_emb",
    "use_fc_norm",
    "use_rel_pos_bias",
    "use_shared_rel_pos_bias",
];

/// Arguments of timm's `Beit` that affect inference, by timm's names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) img_size: Option<[usize; 2]>,
    pub(super) patch_size: [usize; 2],
    pub(super) embed_dim: usize,
    pub(super) depth: usize,
    pub(super) num_heads: usize,
    pub(super) qkv_bias: bool,
    pub(super) mlp_ratio: f64,
    pub(super) swiglu_mlp: bool,
    pub(super) scale_mlp: bool,
    pub(super) norm_layer: Norm,
    /// True if `init_values` is set, which enables LayerScale.
    pub(super) layer_scale: bool,
    pub(super) use_abs_pos_emb: bool,
    pub(super) use_rel_pos_bias: bool,
    pub(super) use_shared_rel_pos_bias: bool,
    pub(super) use_fc_norm: Option<bool>,
    pub(super) global_pool: GlobalPool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            img_size: None,
            patch_size: [16, 16],
            embed_dim: 768,
            depth: 12,
            num_heads: 12,
            qkv_bias: true,
            mlp_ratio: 4.0,
            swiglu_mlp: false,
            scale_mlp: false,
            norm_layer: Norm {
                kind: NormKind::Layer,
                epsilon: EPSILON,
            },
            layer_scale: false,
            use_abs_pos_emb: true,
            use_rel_pos_bias: false,
            use_shared_rel_pos_bias: false,
            use_fc_norm: None,
            global_pool: GlobalPool::Avg,
        }
    }
}

/// Names without the input size at their end, the possible input sizes, and the model's size. A test compares the table
/// with timm's own registry.
const TABLE: &[(&str, &[usize], Size)] = &[
    ("beit_base_patch16", &[224, 384], BASE),
    ("beit_large_patch16", &[224, 384, 512], LARGE),
    ("beitv2_base_patch16", &[224], BASE),
    ("beitv2_large_patch16", &[224], LARGE),
];

/// Iterates over the names of all architectures.
pub(super) fn all() -> impl Iterator<Item = String> {
    TABLE
        .iter()
        .flat_map(|&(stem, sizes, _)| sizes.iter().map(move |size| format!("{stem}_{size}")))
}

/// Returns the arguments of `name`, or `None` if it is not one of these architectures.
pub(super) fn lookup(name: &str) -> Option<Arguments> {
    let (stem, digits) = name.rsplit_once('_')?;
    let size: usize = digits.parse().ok()?;
    let found = TABLE
        .iter()
        .find(|(row, sizes, _)| *row == stem && sizes.contains(&size));
    found.map(
        |&(_, _, Size(embed_dim, depth, num_heads, mlp_ratio))| Arguments {
            img_size: (size != 224).then_some([size, size]),
            embed_dim,
            depth,
            num_heads,
            mlp_ratio,
            layer_scale: true,
            use_abs_pos_emb: false,
            use_rel_pos_bias: true,
            ..Arguments::default()
        },
    )
}

/// Describes a model of this class. The arguments are those of [`super::describe`].
pub(super) fn describe(
    config: Config<'_>,
    name: &str,
    mut arguments: Arguments,
    image_size: Option<[usize; 2]>,
    weights: &Weights,
) -> Result<Description> {
    config.check_arguments(APPLIED, WITHOUT_EFFECT, &[])?;
    apply(config.given, &mut arguments)?;
    let sizes = config.sizes(arguments.img_size, false)?;
    let classes = config.classes()?;
    let fitting = Fitting::Timm {
        configured: stored_grid(sizes.stored, arguments.patch_size, PATCH, weights),
        model: None,
        filter: Filter::CubicAntialiased,
    };
    let image = image_size.unwrap_or(sizes.image);
    let vit = assemble(&arguments, fitting, image, classes.count);
    let vit = vit.map_err(|reason| config.error(reason))?;
    let ignored = [(
        "*relative_position_index",
        "timm computes these indices and skips the stored ones",
    )];
    config.description(name, Family::Beit, &names::EVA, vit, classes, &ignored)
}

/// Replaces the architecture's arguments by the given ones.
pub(super) fn apply(given: Fields<'_>, arguments: &mut Arguments) -> Result<()> {
    check_channels(given)?;
    let a = arguments;
    set(&mut a.patch_size, given.extent("patch_size")?);
    set(&mut a.embed_dim, given.size("embed_dim")?);
    set(&mut a.depth, given.count("depth")?);
    set(&mut a.num_heads, given.size("num_heads")?);
    set(&mut a.mlp_ratio, given.ratio("mlp_ratio")?);
    set(&mut a.global_pool, global_pool(given)?);
    for (key, flag) in [
        ("qkv_bias", &mut a.qkv_bias),
        ("swiglu_mlp", &mut a.swiglu_mlp),
        ("scale_mlp", &mut a.scale_mlp),
        ("use_abs_pos_emb", &mut a.use_abs_pos_emb),
        ("use_rel_pos_bias", &mut a.use_rel_pos_bias),
        ("use_shared_rel_pos_bias", &mut a.use_shared_rel_pos_bias),
    ] {
        set(flag, truth(given, key));
    }
    if given.has("img_size") {
        a.img_size = given.extent("img_size")?;
    }
    set(&mut a.layer_scale, truth(given, "init_values"));
    if given.has("use_fc_norm") {
        a.use_fc_norm = given.get("use_fc_norm").map(is_true);
    }
    set(&mut a.norm_layer, norm(given, "norm_layer")?);
    Ok(())
}

fn assemble(a: &Arguments, fitting: Fitting, image: [usize; 2], classes: usize) -> Result<Vit, Invalid> {
    let pooling = match a.global_pool {
        GlobalPool::Token => Pooling::Class,
        GlobalPool::Avg => Pooling::Mean { skip: 1 },
        _ => return Err("`global_pool` of this architecture is \"avg\" or \"token\"".into()),
    };
    let fc_norm = a.use_fc_norm.unwrap_or(a.global_pool == GlobalPool::Avg);
    let relative = RelativePositions {
        own: a.use_rel_pos_bias,
        shared: a.use_shared_rel_pos_bias,
        fitting: TableFitting::Timm,
    };
    Ok(Vit {
        image,
        patch: a.patch_size,
        patch_filter: Some(Filter::CubicAntialiased),
        dim: a.embed_dim,
        depth: a.depth,
        heads: a.num_heads,
        kv_heads: None,
        hidden: (a.embed_dim as f64 * a.mlp_ratio) as usize,
        mlp: if a.swiglu_mlp {
            Mlp::SwiGlu
        } else {
            Mlp::Plain(Activation::GeluErf)
        },
        norms: a.norm_layer,
        patch_norm: None,
        blocks: Blocks {
            form: BlockForm::PreNorm,
            mlp_norm: a.scale_mlp,
            ..Blocks::default()
        },
        patch_bias: true,
        class_token: true,
        distillation_token: false,
        registers: 0,
        positions: a
            .use_abs_pos_emb
            .then_some(Positions::Table { prefix: 1, fitting }),
        rotary: None,
        hierarchy: None,
        relative: (relative.own || relative.shared).then_some(relative),
        pre_norm: false,
        qkv_bias: [a.qkv_bias, false, a.qkv_bias],
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [a.layer_scale; 2],
        norm: !fc_norm,
        pooling,
        pooled_norm: fc_norm,
        neck: Neck::None,
        classes,
    })
}
