//! Reads timm's `Eva`: EVA and EVA-02, DINOv3, Perception Encoder, ViTs with rotary position embedding, and models
//! derived from them.

mod architectures;

use serde_json::Value;

use super::architectures::{EPSILON, GlobalPool};
use super::arguments::{PATCH, check_padding, global_pool, norm, set};
use super::config::{Config, check_channels, stored_grid, truth};
use crate::error::Result;
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::info::Family;
use crate::model::invalid::Invalid;
use crate::model::names;
use crate::model::norm::{Norm, NormKind};
use crate::model::positions::{Filter, Fitting};
use crate::model::rotary::{Angles, Coordinates, Rotary};
use crate::model::vit::{BlockForm, Blocks, Mlp, Neck, Pooling, Positions, Vit};
use crate::model::weights::Weights;
use crate::ops::{Activation, RopePairs};
pub(super) use architectures::{lookup, names as all};
use hipvit_files::json::is_true;

/// Arguments that only affect training.
const WITHOUT_EFFECT: &[&str] = &[
    "attn_drop_rate",
    "drop_path_rate",
    "drop_rate",
    "head_init_scale",
    "out_indices",
    "patch_drop_rate",
    "pos_drop_rate",
    "proj_drop_rate",
    "rope_jitter_coords",
    "rope_rescale_coords",
    "rope_shift_coords",
];

/// Arguments that change the structure in an unsupported way unless they are `false` or `null`.
const MUST_BE_OFF: &[&str] = &["rope_mrope_section", "use_naflex"];

const ANGLES: &str = "timm computes these angles and skips the stored ones";

/// Arguments that [`apply`] and [`Config`] read.
const APPLIED: &[&str] = &[
    "attn_only_layer_scale",
    "attn_pool_mlp_ratio",
    "attn_pool_num_heads",
    "attn_type",
    "class_token",
    "depth",
    "dynamic_img_pad",
    "dynamic_img_size",
    "embed_dim",
    "global_pool",
    "img_size",
    "in_chans",
    "init_values",
    "mlp_ratio",
    "no_embed_class",
    "norm_layer",
    "num_classes",
    "num_heads",
    "num_kv_heads",
    "num_reg_tokens",
    "patch_size",
    "qk_norm",
    "qkv_bias",
    "qkv_fused",
    "ref_feat_shape",
    "rope_grid_indexing",
    "rope_grid_offset",
    "rope_rotate_half",
    "rope_temperature",
    "rope_type",
    "scale_attn_inner",
    "scale_mlp",
    "swiglu_align_to",
    "swiglu_mlp",
    "use_abs_pos_emb",
    "use_fc_norm",
    "use_post_norm",
    "use_post_transformer_norm",
    "use_pre_transformer_norm",
    "use_rot_pos_emb",
];

/// Arguments of timm's `Eva` that affect inference, by timm's names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) img_size: Option<[usize; 2]>,
    pub(super) dynamic_img_size: bool,
    pub(super) patch_size: [usize; 2],
    pub(super) embed_dim: usize,
    pub(super) depth: usize,
    pub(super) num_heads: usize,
    pub(super) num_kv_heads: Option<KvHeads>,
    pub(super) qkv_bias: bool,
    pub(super) qkv_fused: bool,
    pub(super) qk_norm: bool,
    pub(super) mlp_ratio: f64,
    pub(super) swiglu_mlp: bool,
    pub(super) swiglu_align_to: usize,
    pub(super) scale_mlp: bool,
    pub(super) scale_attn_inner: bool,
    /// True if `attn_type` is `"rope"`, whose keys have a bias too.
    pub(super) plain_attention: bool,
    pub(super) norm_layer: Norm,
    /// True if `init_values` is set, which enables LayerScale.
    pub(super) layer_scale: bool,
    pub(super) attn_only_layer_scale: bool,
    pub(super) class_token: bool,
    pub(super) num_reg_tokens: usize,
    pub(super) no_embed_class: bool,
    pub(super) use_abs_pos_emb: bool,
    pub(super) use_rot_pos_emb: bool,
    pub(super) rope_type: RopeType,
    pub(super) rope_grid_offset: f64,
    /// True if `rope_grid_indexing` is `"xy"`.
    pub(super) rope_columns_first: bool,
    pub(super) rope_temperature: f64,
    pub(super) rope_rotate_half: bool,
    pub(super) use_post_norm: bool,
    pub(super) use_pre_transformer_norm: bool,
    pub(super) use_post_transformer_norm: Option<bool>,
    pub(super) use_fc_norm: Option<bool>,
    pub(super) global_pool: GlobalPool,
    pub(super) attn_pool_num_heads: Option<usize>,
    pub(super) attn_pool_mlp_ratio: Option<f64>,
    pub(super) ref_feat_shape: Option<[usize; 2]>,
}

/// timm's `num_kv_heads`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KvHeads {
    Every(usize),
    OfBlocks(Vec<usize>),
}

/// timm's `rope_type`, as far as it is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RopeType {
    Cat,
    Mixed,
    Dinov3,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            img_size: None,
            dynamic_img_size: false,
            patch_size: [16, 16],
            embed_dim: 768,
            depth: 12,
            num_heads: 12,
            num_kv_heads: None,
            qkv_bias: true,
            qkv_fused: true,
            qk_norm: false,
            mlp_ratio: 4.0,
            swiglu_mlp: false,
            swiglu_align_to: 0,
            scale_mlp: false,
            scale_attn_inner: false,
            plain_attention: false,
            norm_layer: Norm {
                kind: NormKind::Layer,
                epsilon: EPSILON,
            },
            layer_scale: false,
            attn_only_layer_scale: false,
            class_token: true,
            num_reg_tokens: 0,
            no_embed_class: false,
            use_abs_pos_emb: true,
            use_rot_pos_emb: false,
            rope_type: RopeType::Cat,
            rope_grid_offset: 0.0,
            rope_columns_first: false,
            rope_temperature: 10_000.0,
            rope_rotate_half: false,
            use_post_norm: false,
            use_pre_transformer_norm: false,
            use_post_transformer_norm: None,
            use_fc_norm: None,
            global_pool: GlobalPool::Avg,
            attn_pool_num_heads: None,
            attn_pool_mlp_ratio: None,
            ref_feat_shape: None,
        }
    }
}

/// Describes a model of this class. The arguments are those of [`super::describe`].
pub(super) fn describe(
    config: Config<'_>,
    name: &str,
    mut arguments: Arguments,
    image_size: Option<[usize; 2]>,
    weights: &Weights,
) -> Result<Description> {
    config.check_arguments(APPLIED, WITHOUT_EFFECT, MUST_BE_OFF)?;
    apply(config.given, &mut arguments)?;
    let sizes = config.sizes(arguments.img_size, arguments.dynamic_img_size)?;
    let classes = config.classes()?;
    let patch = arguments.patch_size;
    let fitting = Fitting::Timm {
        configured: stored_grid(sizes.stored, patch, PATCH, weights),
        model: arguments
            .dynamic_img_size
            .then(|| [0, 1].map(|axis| sizes.model[axis] / patch[axis])),
        filter: Filter::CubicAntialiased,
    };
    let image = image_size.unwrap_or(sizes.image);
    let vit = assemble(&arguments, fitting, image, classes.count);
    let vit = vit.map_err(|reason| config.error(reason))?;
    check_padding(config, &vit)?;
    let names = if arguments.qkv_fused {
        &names::EVA
    } else {
        &names::EVA_SEPARATE
    };
    let ignored = [
        ("rope.*", ANGLES),
        ("*rope.freqs_cos", ANGLES),
        ("*rope.freqs_sin", ANGLES),
        ("mask_token", "the mask token is for pre-training"),
    ];
    config.description(name, family(name), names, vit, classes, &ignored)
}

fn family(name: &str) -> Family {
    match name {
        _ if name.starts_with("eva") => Family::Eva,
        _ if name.contains("dinov3") => Family::Dinov3,
        _ => Family::Vit,
    }
}

/// Replaces the architecture's arguments by the given ones.
pub(super) fn apply(given: Fields<'_>, arguments: &mut Arguments) -> Result<()> {
    check_channels(given)?;
    for key in ["attn_type", "rope_grid_indexing", "rope_type"] {
        if given.has(key) && given.get(key).is_none() {
            return Err(given.error(key, "is null, expected a string"));
        }
    }
    let a = arguments;
    if let Some(kind) = given.text("attn_type")? {
        a.plain_attention = match kind {
            "eva" => false,
            "rope" => true,
            _ => {
                let reason = format_args!("is \"{kind}\"; supported are \"eva\" and \"rope\"");
                return Err(given.error("attn_type", reason));
            }
        };
    }
    if let Some(kind) = given.text("rope_type")? {
        a.rope_type = match kind {
            "cat" => RopeType::Cat,
            "mixed" => RopeType::Mixed,
            "dinov3" => RopeType::Dinov3,
            _ => {
                let reason = format_args!("is \"{kind}\"; supported are \"cat\", \"mixed\" and \"dinov3\"");
                return Err(given.error("rope_type", reason));
            }
        };
    }
    if let Some(order) = given.text("rope_grid_indexing")? {
        a.rope_columns_first = match order {
            "ij" => false,
            "xy" => true,
            _ => {
                let reason = format_args!("is \"{order}\", expected \"ij\" or \"xy\"");
                return Err(given.error("rope_grid_indexing", reason));
            }
        };
    }
    set(&mut a.patch_size, given.extent("patch_size")?);
    set(&mut a.embed_dim, given.size("embed_dim")?);
    set(&mut a.depth, given.count("depth")?);
    set(&mut a.num_heads, given.size("num_heads")?);
    set(&mut a.mlp_ratio, given.ratio("mlp_ratio")?);
    set(&mut a.swiglu_align_to, given.count("swiglu_align_to")?);
    set(&mut a.num_reg_tokens, given.count("num_reg_tokens")?);
    set(&mut a.rope_grid_offset, given.number("rope_grid_offset")?);
    set(&mut a.rope_temperature, given.number("rope_temperature")?);
    set(&mut a.global_pool, global_pool(given)?);
    for (key, flag) in [
        ("dynamic_img_size", &mut a.dynamic_img_size),
        ("qkv_bias", &mut a.qkv_bias),
        ("qkv_fused", &mut a.qkv_fused),
        ("qk_norm", &mut a.qk_norm),
        ("swiglu_mlp", &mut a.swiglu_mlp),
        ("scale_mlp", &mut a.scale_mlp),
        ("scale_attn_inner", &mut a.scale_attn_inner),
        ("attn_only_layer_scale", &mut a.attn_only_layer_scale),
        ("class_token", &mut a.class_token),
        ("no_embed_class", &mut a.no_embed_class),
        ("use_abs_pos_emb", &mut a.use_abs_pos_emb),
        ("use_rot_pos_emb", &mut a.use_rot_pos_emb),
        ("rope_rotate_half", &mut a.rope_rotate_half),
        ("use_post_norm", &mut a.use_post_norm),
        ("use_pre_transformer_norm", &mut a.use_pre_transformer_norm),
    ] {
        set(flag, truth(given, key));
    }
    if given.has("img_size") {
        a.img_size = given.extent("img_size")?;
    }
    if given.has("init_values") {
        // Unlike timm's other ViTs, this class enables LayerScale for 0 too.
        a.layer_scale = given.get("init_values").is_some();
    }
    if given.has("use_fc_norm") {
        a.use_fc_norm = given.get("use_fc_norm").map(is_true);
    }
    if given.has("use_post_transformer_norm") {
        a.use_post_transformer_norm = given.get("use_post_transformer_norm").map(is_true);
    }
    if given.has("ref_feat_shape") {
        a.ref_feat_shape = given.extent("ref_feat_shape")?;
    }
    if given.has("attn_pool_num_heads") {
        a.attn_pool_num_heads = given.size("attn_pool_num_heads")?;
    }
    if given.has("attn_pool_mlp_ratio") {
        a.attn_pool_mlp_ratio = given.ratio("attn_pool_mlp_ratio")?;
    }
    if given.has("num_kv_heads") {
        a.num_kv_heads = kv_heads(given)?;
    }
    set(&mut a.norm_layer, norm(given, "norm_layer")?);
    Ok(())
}

fn kv_heads(given: Fields<'_>) -> Result<Option<KvHeads>> {
    let key = "num_kv_heads";
    let Some(Value::Array(list)) = given.get(key) else {
        return Ok(given.size(key)?.map(KvHeads::Every));
    };
    let counts = list.iter().map(|count| match count.as_u64() {
        Some(count @ 1..=0xffff) => Ok(count as usize),
        _ => Err(given.unexpected(key, count, "a list of numbers of heads")),
    });
    counts.collect::<Result<_>>().map(KvHeads::OfBlocks).map(Some)
}

impl Arguments {
    /// Returns true if the pooled vector is normed.
    pub(super) fn fc_norm(&self) -> bool {
        self.use_fc_norm.unwrap_or(self.global_pool == GlobalPool::Avg)
    }

    fn rotary(&self) -> Option<Rotary> {
        let coordinates = match self.rope_type {
            RopeType::Dinov3 => Some(Coordinates::Centres {
                offset: self.rope_grid_offset,
            }),
            RopeType::Cat => Some(Coordinates::Numbers {
                offset: self.rope_grid_offset,
                reference: self.ref_feat_shape,
            }),
            RopeType::Mixed => None,
        };
        self.use_rot_pos_emb.then_some(Rotary {
            pairs: if self.rope_rotate_half {
                RopePairs::Halves
            } else {
                RopePairs::Interleaved
            },
            angles: match coordinates {
                Some(coordinates) => Angles::Axial {
                    coordinates,
                    temperature: self.rope_temperature,
                },
                None => Angles::Learned,
            },
            columns_first: self.rope_columns_first,
        })
    }
}

fn assemble(a: &Arguments, fitting: Fitting, image: [usize; 2], classes: usize) -> Result<Vit, Invalid> {
    if a.use_rot_pos_emb && a.rope_type == RopeType::Mixed && a.rope_rotate_half {
        return Err("`rope_type` \"mixed\" needs `rope_rotate_half` to be false".into());
    }
    if a.use_post_norm && (a.qk_norm || a.attn_only_layer_scale || a.num_kv_heads.is_some()) {
        return Err(
            "`use_post_norm` takes neither `qk_norm`, `num_kv_heads` nor `attn_only_layer_scale`".into(),
        );
    }
    if a.num_kv_heads.is_some() && (a.qkv_fused || !a.plain_attention) {
        return Err("`num_kv_heads` needs `attn_type` \"rope\" and `qkv_fused` to be false".into());
    }
    let prefix = usize::from(a.class_token) + a.num_reg_tokens;
    let width = (a.embed_dim as f64 * a.mlp_ratio) as usize;
    let aligned = match a.swiglu_align_to {
        0 => width,
        unit => width.next_multiple_of(unit),
    };
    // timm aligns the width only if gate and value have a layer each. In a block with norms at the end, this depends
    // only on `scale_mlp`.
    let separate = a.scale_mlp || (a.swiglu_align_to > 0 && !a.use_post_norm);
    let (mlp, hidden) = match (a.swiglu_mlp, separate) {
        (false, _) => (Mlp::Plain(Activation::GeluErf), width),
        (true, true) => (Mlp::SwiGlu, aligned),
        (true, false) => (Mlp::SwiGluPacked, width),
    };
    let pooling = match a.global_pool {
        GlobalPool::Token => Pooling::Class,
        GlobalPool::Avg => Pooling::Mean { skip: prefix },
        GlobalPool::Max => Pooling::Max { skip: prefix },
        GlobalPool::AvgMax => Pooling::MeanAndMax { skip: prefix },
        // Unlike in timm's other ViTs, all tokens are pooled.
        GlobalPool::Map => Pooling::Attention {
            skip: 0,
            heads: a.attn_pool_num_heads.unwrap_or(a.num_heads),
            hidden: (a.embed_dim as f64 * a.attn_pool_mlp_ratio.unwrap_or(a.mlp_ratio)) as usize,
            activation: Activation::GeluErf,
        },
        GlobalPool::Prr => return Err("`global_pool` \"prr\" is not one of this architecture's".into()),
    };
    let layer_scale = a.layer_scale && !a.use_post_norm;
    let fc_norm = a.fc_norm();
    Ok(Vit {
        image,
        patch: a.patch_size,
        patch_filter: Some(Filter::CubicAntialiased),
        dim: a.embed_dim,
        depth: a.depth,
        heads: a.num_heads,
        kv_heads: match &a.num_kv_heads {
            None => None,
            Some(KvHeads::Every(count)) => Some(vec![*count; a.depth]),
            Some(KvHeads::OfBlocks(counts)) => Some(counts.clone()),
        },
        hidden,
        mlp,
        norms: a.norm_layer,
        patch_norm: None,
        blocks: Blocks {
            form: if a.use_post_norm {
                BlockForm::PostNorm
            } else {
                BlockForm::PreNorm
            },
            differential: false,
            causal: false,
            qk_norm: a.qk_norm,
            attention_norm: a.scale_attn_inner,
            mlp_norm: a.scale_mlp,
        },
        patch_bias: !a.use_pre_transformer_norm,
        class_token: a.class_token,
        distillation_token: false,
        registers: a.num_reg_tokens,
        positions: a.use_abs_pos_emb.then_some(Positions::Table {
            prefix: if a.no_embed_class { 0 } else { prefix },
            fitting,
        }),
        rotary: a.rotary(),
        hierarchy: None,
        relative: None,
        pre_norm: a.use_pre_transformer_norm,
        qkv_bias: [a.qkv_bias, a.qkv_bias && a.plain_attention, a.qkv_bias],
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [layer_scale, layer_scale && !a.attn_only_layer_scale],
        norm: a.use_post_transformer_norm.unwrap_or(!fc_norm),
        pooling,
        pooled_norm: fc_norm,
        neck: Neck::None,
        classes,
    })
}
