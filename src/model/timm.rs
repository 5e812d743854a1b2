//! timm's `config.json`: an architecture's name, arguments that override it, and the preprocessing. Resolved in timm's
//! order: the architecture's arguments, overridden by `model_args`, and `pretrained_cfg` for what neither sets.

mod architectures;
mod beit;
mod eva;
mod mixer;

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::Fields;
use super::names;
use super::positions::{Filter, Fitting};
use super::vit::{BlockForm, Blocks, Mlp, Neck, Norm, NormKind, Pooling, Positions, Vit};
use super::{Description, Family, Library, near};
use crate::error::{Error, Result};
use crate::labels::Labels;
use crate::ops::Activation;
use architectures::{Arguments, EPSILON, Gating, GlobalPool};

const IMAGENET_CLASSES: usize = 1000;
const DEFAULT_IMAGE: usize = 224;

/// Arguments that only affect training or timm itself.
const WITHOUT_EFFECT: &[&str] = &[
    "attn_drop_rate",
    "drop_path_rate",
    "drop_rate",
    "fix_init",
    "patch_drop_rate",
    "pos_drop_rate",
    "proj_drop_rate",
    "weight_init",
];

/// Arguments that change the structure in a way that is not supported unless they are `false` or `null`.
const MUST_BE_OFF: &[&str] = &["dynamic_img_pad", "use_naflex"];

/// Reads the configuration; `image_size` is the requested size, timm's `img_size`.
///
/// # Errors
///
/// [`Error::Config`], naming file and key, for what is not supported.
pub(super) fn describe(config: Fields<'_>, image_size: Option<[usize; 2]>) -> Result<Description> {
    let name = config.text("architecture")?.unwrap_or_default();
    if let Some(arguments) = eva::lookup(name) {
        return eva::describe(config, name, arguments, image_size);
    }
    if let Some(arguments) = beit::lookup(name) {
        return beit::describe(config, name, arguments, image_size);
    }
    if let Some(arguments) = mixer::lookup(name) {
        return mixer::describe(config, name, arguments, image_size);
    }
    let mut arguments = architectures::lookup(name).ok_or_else(|| unknown(config, name))?;
    // Files from before timm had `pretrained_cfg` keep its keys at the top level.
    let pretrained = config.object("pretrained_cfg")?.unwrap_or(config);
    let given = config.object("model_args")?;
    if let Some(given) = given {
        check_arguments(given, APPLIED, WITHOUT_EFFECT, MUST_BE_OFF)?;
        apply(given, &mut arguments)?;
    }
    let sizes = sizes(pretrained, given, None, false)?;
    let classes = classes(config, pretrained, given)?;
    if pretrained.count("label_offset")?.is_some_and(|offset| offset > 0) {
        return Err(pretrained.error("label_offset", "is not supported"));
    }
    let image = image_size.unwrap_or(sizes.image);
    let filter = match sizes.dynamic {
        true => Filter::CubicAntialiased,
        false => filter(name),
    };
    let vit = assemble(config, &arguments, sizes.checkpoint, filter, image, classes)?;
    let mut ignored = vec![(
        "pre_logits.*",
        "timm dropped the representation layer and skips its tensors",
    )];
    if name.contains("siglip") && arguments.global_pool != GlobalPool::Map {
        ignored.push(("attn_pool.*", "the architecture pools by the mean instead"));
    }
    Ok(Description {
        library: Library::Timm,
        family: family(name),
        architecture: name.to_owned(),
        vit,
        text: None,
        names: &names::TIMM,
        prefixes: &[""],
        ignored,
        labels: labels(config, pretrained, classes)?,
        multi_label: false,
    })
}

/// Returns true if transformers wrote the model, by its wrapper for models of timm.
pub(super) fn is_wrapped(config: Fields<'_>) -> Result<bool> {
    Ok(config.text("model_type")? == Some("timm_wrapper"))
}

/// Returns true if transformers' wrapper has made the model without its classifier, whatever `num_classes` says.
fn is_without_head(config: Fields<'_>) -> Result<bool> {
    let class = config
        .get("architectures")
        .and_then(|list| list.get(0))
        .and_then(Value::as_str);
    let without = is_wrapped(config)? && class == Some("TimmWrapperModel");
    if without && config.flag("do_pooling")? == Some(false) {
        return Err(config.error(
            "do_pooling",
            "is false, so the model makes no embedding of an image",
        ));
    }
    Ok(without)
}

/// Whether the configuration's architecture is supported.
pub(super) fn check_architecture(config: Fields<'_>) -> Result<()> {
    let name = config.text("architecture")?.unwrap_or_default();
    let known = architectures::lookup(name).is_some();
    match known
        || eva::lookup(name).is_some()
        || beit::lookup(name).is_some()
        || mixer::lookup(name).is_some()
    {
        true => Ok(()),
        false => Err(unknown(config, name)),
    }
}

fn unknown(config: Fields<'_>, name: &str) -> Error {
    let near = near(
        name,
        architectures::names()
            .chain(eva::all())
            .chain(beit::all())
            .chain(mixer::all()),
    );
    config.error(
        "architecture",
        format_args!(
            "is \"{name}\", which is not supported{near}; supported are the architectures of timm's modules vision_transformer, deit, eva, beit and mlp_mixer"
        ),
    )
}

/// The repository of an architecture's default weights on the hub, below `timm/`.
pub(super) fn pretrained(architecture: &str) -> Option<&'static str> {
    // Written by scripts/timm_tables.py.
    let mut rows = include_str!("timm/pretrained.tsv")
        .lines()
        .filter_map(|row| row.split_once('\t'));
    rows.find(|(name, _)| *name == architecture)
        .map(|(_, repository)| repository)
}

fn family(name: &str) -> Family {
    match name {
        _ if name.starts_with("deit") => Family::Deit,
        _ if name.contains("dinov2") || name.contains("tipsv2") => Family::Dinov2,
        _ if name.contains("_clip") => Family::Clip,
        _ if name.contains("_siglip") => Family::Siglip,
        _ => Family::Vit,
    }
}

/// How timm fits positions when it loads the architecture. A model of any image size fits them when it runs, as most do.
fn filter(name: &str) -> Filter {
    match name {
        "vit_base_patch16_radio_v3" | "vit_huge_patch16_radio_v3" => Filter::LinearAligned,
        _ if name.contains("radio") || name.contains("flexi") => Filter::Linear,
        _ => Filter::CubicAntialiased,
    }
}

/// Rejects arguments that would be ignored.
fn check_arguments(
    given: Fields<'_>,
    applied: &[&str],
    without_effect: &[&str],
    must_be_off: &[&str],
) -> Result<()> {
    for key in given.keys() {
        if must_be_off.contains(&key) {
            match given.get(key) {
                None | Some(Value::Bool(false)) => {}
                Some(value) => return Err(given.unexpected(key, value, "false: it is not supported")),
            }
        } else if !without_effect.contains(&key) && !applied.contains(&key) {
            return Err(given.error(key, "is not a supported argument"));
        }
    }
    Ok(())
}

/// The arguments that [`apply`], [`sizes`] and [`classes`] read.
const APPLIED: &[&str] = &[
    "act_layer",
    "attn_layer",
    "class_token",
    "depth",
    "dynamic_img_size",
    "embed_dim",
    "embed_norm_layer",
    "fc_norm",
    "final_norm",
    "global_pool",
    "img_size",
    "in_chans",
    "init_values",
    "mlp_ratio",
    "no_embed_class",
    "norm_layer",
    "num_classes",
    "num_heads",
    "patch_size",
    "pool_include_prefix",
    "pos_embed",
    "pre_norm",
    "proj_bias",
    "qk_norm",
    "qkv_bias",
    "reg_tokens",
    "scale_attn_norm",
    "scale_mlp_norm",
];

/// Replaces the architecture's arguments by those that are given.
fn apply(given: Fields<'_>, arguments: &mut Arguments) -> Result<()> {
    check_channels(given)?;
    match given.text("attn_layer")? {
        None => {}
        Some("" | "attn") => arguments.differential = false,
        Some("diff") => arguments.differential = true,
        Some(attention) => {
            let reason = format_args!("is \"{attention}\"; supported are \"attn\" and \"diff\"");
            return Err(given.error("attn_layer", reason));
        }
    }
    set(&mut arguments.patch_size, given.extent("patch_size")?);
    set(&mut arguments.embed_dim, given.size("embed_dim")?);
    set(&mut arguments.depth, given.count("depth")?);
    set(&mut arguments.num_heads, given.size("num_heads")?);
    set(&mut arguments.mlp_ratio, given.ratio("mlp_ratio")?);
    set(&mut arguments.qkv_bias, given.flag("qkv_bias")?);
    set(&mut arguments.proj_bias, given.flag("proj_bias")?);
    set(&mut arguments.class_token, given.flag("class_token")?);
    set(&mut arguments.reg_tokens, given.count("reg_tokens")?);
    set(&mut arguments.no_embed_class, given.flag("no_embed_class")?);
    set(&mut arguments.pre_norm, given.flag("pre_norm")?);
    set(&mut arguments.final_norm, given.flag("final_norm")?);
    set(
        &mut arguments.pool_include_prefix,
        given.flag("pool_include_prefix")?,
    );
    set(&mut arguments.qk_norm, given.flag("qk_norm")?);
    set(&mut arguments.scale_attn_norm, given.flag("scale_attn_norm")?);
    set(&mut arguments.scale_mlp_norm, given.flag("scale_mlp_norm")?);
    set(&mut arguments.act_layer, activation(given)?);
    set(&mut arguments.pos_embed, positions(given)?);
    set(&mut arguments.global_pool, global_pool(given)?);
    if given.has("init_values") {
        // Python's truth: LayerScale is off for null and for 0.
        arguments.layer_scale = given.number("init_values")?.is_some_and(|value| value != 0.0);
    }
    if given.has("fc_norm") {
        arguments.fc_norm = given.flag("fc_norm")?;
    }
    if let Some(norm) = norm(given, "norm_layer")? {
        arguments.norm_layer = norm;
    }
    if given.has("embed_norm_layer") {
        arguments.embed_norm_layer = norm(given, "embed_norm_layer")?;
    }
    Ok(())
}

fn check_channels(given: Fields<'_>) -> Result<()> {
    match given.count("in_chans")? {
        None | Some(3) => Ok(()),
        Some(channels) => Err(given.error(
            "in_chans",
            format_args!("is {channels}; only 3 channels are supported"),
        )),
    }
}

/// The norm that timm makes of a name.
fn norm(given: Fields<'_>, key: &str) -> Result<Option<Norm>> {
    let Some(name) = given.text(key)? else {
        return Ok(None);
    };
    let kind = match name.replace('_', "").to_lowercase().as_str() {
        "layernorm" => NormKind::Layer,
        "rmsnorm" => NormKind::Rms,
        _ => {
            let reason = format_args!("is \"{name}\"; supported are \"layernorm\" and \"rmsnorm\"");
            return Err(given.error(key, reason));
        }
    };
    Ok(Some(Norm {
        kind,
        epsilon: EPSILON,
    }))
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

fn activation(given: Fields<'_>) -> Result<Option<Activation>> {
    let Some(name) = given.text("act_layer")? else {
        return Ok(None);
    };
    match name.to_lowercase().as_str() {
        "gelu" => Ok(Some(Activation::GeluErf)),
        "gelu_tanh" => Ok(Some(Activation::GeluTanh)),
        "quick_gelu" => Ok(Some(Activation::QuickGelu)),
        "silu" | "swish" => Ok(Some(Activation::Silu)),
        "relu" => Ok(Some(Activation::Relu)),
        "tanh" => Ok(Some(Activation::Tanh)),
        _ => Err(given.error("act_layer", format_args!("is \"{name}\", which is not supported"))),
    }
}

fn positions(given: Fields<'_>) -> Result<Option<bool>> {
    match given.text("pos_embed")? {
        None => Ok(None),
        Some("learn") => Ok(Some(true)),
        Some("" | "none") => Ok(Some(false)),
        Some(other) => Err(given.error(
            "pos_embed",
            format_args!("is \"{other}\", expected \"learn\" or \"none\""),
        )),
    }
}

fn global_pool(given: Fields<'_>) -> Result<Option<GlobalPool>> {
    match given.text("global_pool")? {
        None => Ok(None),
        Some("token") => Ok(Some(GlobalPool::Token)),
        Some("avg") => Ok(Some(GlobalPool::Avg)),
        Some("max") => Ok(Some(GlobalPool::Max)),
        Some("avgmax") => Ok(Some(GlobalPool::AvgMax)),
        Some("map") => Ok(Some(GlobalPool::Map)),
        Some("prr") => Ok(Some(GlobalPool::Prr)),
        Some(other) => {
            let reason = format_args!(
                "is \"{other}\"; supported are \"token\", \"avg\", \"max\", \"avgmax\", \"map\" and \"prr\""
            );
            Err(given.error("global_pool", reason))
        }
    }
}

struct Sizes {
    /// The sizes for which the checkpoint's positions were trained, as far as the file tells.
    checkpoint: [usize; 2],
    /// The input image.
    image: [usize; 2],
    /// Whether the model takes images of any size.
    dynamic: bool,
}

/// `size` and `dynamic` are the architecture's own.
fn sizes(
    pretrained: Fields<'_>,
    given: Option<Fields<'_>>,
    size: Option<[usize; 2]>,
    dynamic: bool,
) -> Result<Sizes> {
    let input = input_size(pretrained)?;
    let (size, dynamic) = match given {
        Some(given) => (
            given.extent("img_size")?.or(size),
            given.flag("dynamic_img_size")?.unwrap_or(dynamic),
        ),
        None => (size, dynamic),
    };
    let fixed = pretrained.flag("fixed_input_size")?.unwrap_or(false) && !dynamic;
    let checkpoint = size.or(input).unwrap_or([DEFAULT_IMAGE, DEFAULT_IMAGE]);
    // A model of fixed size takes images of that size, whatever the preprocessing was written for.
    let image = if fixed {
        checkpoint
    } else {
        input.unwrap_or(checkpoint)
    };
    Ok(Sizes {
        checkpoint,
        image,
        dynamic,
    })
}

/// `pretrained_cfg.input_size`, without its channels.
fn input_size(pretrained: Fields<'_>) -> Result<Option<[usize; 2]>> {
    let Some(value) = pretrained.get("input_size") else {
        return Ok(None);
    };
    let size = |value: &Value| {
        value
            .as_u64()
            .filter(|size| (1..=1 << 20).contains(size))
            .map(|size| size as usize)
    };
    let extents: Option<Vec<usize>> = value.as_array().and_then(|list| list.iter().map(size).collect());
    match extents.as_deref() {
        Some(&[3, height, width]) => Ok(Some([height, width])),
        _ => Err(pretrained.unexpected("input_size", value, "[3, height, width]")),
    }
}

fn classes(config: Fields<'_>, pretrained: Fields<'_>, given: Option<Fields<'_>>) -> Result<usize> {
    if is_without_head(config)? {
        return Ok(0);
    }
    let stored = match config.count("num_classes")? {
        Some(count) => count,
        None => pretrained.count("num_classes")?.unwrap_or(IMAGENET_CLASSES),
    };
    match given {
        Some(given) => match given.count("num_classes")? {
            Some(count) if count != stored => {
                let reason = format_args!("is {count}, but `num_classes` of the checkpoint is {stored}");
                Err(given.error("num_classes", reason))
            }
            _ => Ok(stored),
        },
        None => Ok(stored),
    }
}

fn assemble(
    config: Fields<'_>,
    arguments: &Arguments,
    checkpoint: [usize; 2],
    filter: Filter,
    image: [usize; 2],
    classes: usize,
) -> Result<Vit> {
    let wrong = |reason: &str| Error::config(config.file(), reason);
    let prefix = usize::from(arguments.class_token) + usize::from(arguments.distilled) + arguments.reg_tokens;
    let width = (arguments.embed_dim as f64 * arguments.mlp_ratio) as usize;
    let blocks = blocks(arguments).map_err(|reason| wrong(&reason))?;
    let plain = Mlp::Plain(arguments.act_layer);
    let (mlp, hidden) = match (arguments.mlp_layer, arguments.act_layer) {
        // Parallel blocks have a network of their own.
        _ if blocks.form == BlockForm::Parallel => (plain, width),
        (Gating::None, _) => (plain, width),
        (Gating::Packed, Activation::Silu) if width.is_multiple_of(2) => (Mlp::SwiGluPacked, width / 2),
        (Gating::Separate, Activation::Silu) => (Mlp::SwiGlu, width),
        _ => return Err(wrong("SwiGLU needs SiLU and an even number of channels")),
    };
    let skip = if arguments.pool_include_prefix { 0 } else { prefix };
    let pooling = match arguments.global_pool {
        GlobalPool::Token if arguments.distilled => Pooling::ClassAndDistillation,
        _ if arguments.distilled => return Err(wrong("a distilled model pools its tokens")),
        GlobalPool::Token => Pooling::Class,
        GlobalPool::Avg => Pooling::Mean { skip },
        GlobalPool::Max => Pooling::Max { skip },
        GlobalPool::AvgMax => Pooling::MeanAndMax { skip },
        GlobalPool::Map => Pooling::Attention {
            skip,
            heads: arguments.num_heads,
            hidden: width,
            activation: arguments.act_layer,
        },
        GlobalPool::Prr => Pooling::SelfAttention,
    };
    if arguments.distilled
        && (!arguments.class_token
            || arguments.reg_tokens > 0
            || arguments.no_embed_class
            || !arguments.pos_embed)
    {
        return Err(wrong(
            "a distilled model has a class token with a position, and no registers",
        ));
    }
    let fc_norm = arguments.fc_norm.unwrap_or(matches!(
        arguments.global_pool,
        GlobalPool::Avg | GlobalPool::Max | GlobalPool::AvgMax
    ));
    let patch = arguments.patch_size;
    Ok(Vit {
        image,
        patch,
        dim: arguments.embed_dim,
        depth: arguments.depth,
        heads: arguments.num_heads,
        kv_heads: None,
        hidden,
        mlp,
        norms: arguments.norm_layer,
        patch_norm: arguments.embed_norm_layer,
        blocks,
        patch_bias: !arguments.pre_norm,
        class_token: arguments.class_token,
        distillation_token: arguments.distilled,
        registers: arguments.reg_tokens,
        positions: arguments.pos_embed.then_some(Positions::Table {
            prefix: if arguments.no_embed_class { 0 } else { prefix },
            fitting: Fitting::Timm {
                configured: [0, 1].map(|axis| checkpoint[axis] / patch[axis]),
                filter,
            },
        }),
        rotary: None,
        relative: None,
        pre_norm: arguments.pre_norm,
        qkv_bias: [arguments.qkv_bias; 3],
        projection_bias: arguments.proj_bias,
        mlp_bias: arguments.proj_bias,
        // That of a block whose norms come last is its norms' weight.
        layer_scale: [arguments.layer_scale && blocks.form != BlockForm::PostNorm; 2],
        norm: arguments.final_norm && !fc_norm,
        pooling,
        pooled_norm: arguments.final_norm && fc_norm && !arguments.distilled,
        neck: Neck::None,
        classes,
    })
}

/// How the architecture's blocks are made, or why they cannot be.
fn blocks(arguments: &Arguments) -> Result<Blocks, String> {
    let form = arguments.block_fn;
    let parallel = form == BlockForm::Parallel;
    // timm's parallel blocks do not take `attn_layer`.
    let differential = match parallel {
        true => arguments.differential_block,
        false => arguments.differential,
    };
    if differential && arguments.qk_norm {
        return Err("differential attention with `qk_norm` is not supported".into());
    }
    if parallel && (arguments.scale_attn_norm || arguments.scale_mlp_norm) {
        return Err("a parallel block takes neither `scale_attn_norm` nor `scale_mlp_norm`".into());
    }
    Ok(Blocks {
        form,
        differential,
        causal: false,
        qk_norm: arguments.qk_norm,
        attention_norm: arguments.scale_attn_norm,
        mlp_norm: arguments.scale_mlp_norm,
    })
}

/// `label_names` (a list, or an object by index) with `label_descriptions` replacing the names that it describes.
fn labels(config: Fields<'_>, pretrained: Fields<'_>, classes: usize) -> Result<Labels> {
    let place = |key| {
        if config.get(key).is_some() {
            config
        } else {
            pretrained
        }
    };
    let mut names: BTreeMap<usize, &str> = BTreeMap::new();
    let holder = place("label_names");
    match holder.get("label_names") {
        None => {}
        Some(Value::Array(list)) => {
            names.extend(
                list.iter()
                    .enumerate()
                    .filter_map(|(index, name)| Some((index, name.as_str()?))),
            );
        }
        Some(Value::Object(map)) => {
            names.extend(
                map.iter()
                    .filter_map(|(index, name)| Some((index.parse().ok()?, name.as_str()?))),
            );
        }
        Some(other) => return Err(holder.unexpected("label_names", other, "a list or an object")),
    }
    let descriptions = place("label_descriptions").object("label_descriptions")?;
    let known = |index: usize| {
        let name = *names.get(&index)?;
        let description = descriptions.and_then(|map| map.get(name)).and_then(Value::as_str);
        // A name with a description is an id, as ImageNet's are.
        Some((descriptions.map(|_| name), description.unwrap_or(name)))
    };
    Ok(Labels::of_model(classes, known, |index| format!("class {index}")))
}

#[cfg(test)]
mod tests;
