//! Reads timm's `VisionTransformer` and `VisionTransformerDistilled`.

use super::architectures::{Arguments, Gating, GlobalPool, LAYER_NORM};
use super::arguments::{PATCH, check_padding, global_pool, norm, set};
use super::config::{Config, check_channels, stored_grid, truth};
use crate::error::Result;
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::info::Family;
use crate::model::invalid::Invalid;
use crate::model::names;
use crate::model::positions::{Filter, Fitting};
use crate::model::vit::{BlockForm, Blocks, Mlp, Neck, Pooling, Positions, Vit};
use crate::model::weights::Weights;
use crate::ops::Activation;
use hipvit_files::json::is_true;

/// Arguments that only affect training or timm itself.
const WITHOUT_EFFECT: &[&str] = &[
    "attn_drop_rate",
    "drop_path_rate",
    "drop_rate",
    "fix_init",
    "out_indices",
    "patch_drop_rate",
    "pos_drop_rate",
    "proj_drop_rate",
    "weight_init",
];

/// Arguments that change the structure in an unsupported way unless they are `false` or `null`.
const MUST_BE_OFF: &[&str] = &["use_naflex"];

/// Architectures that take images of any size without `dynamic_img_size`.
const DYNAMIC: &[&str] = &["test_vit", "test_vit2", "test_vit4", "vit_intern300m_patch14_448"];

/// Describes a model of these classes. The arguments are those of [`super::describe`].
pub(super) fn describe(
    config: Config<'_>,
    name: &str,
    mut arguments: Arguments,
    image_size: Option<[usize; 2]>,
    weights: &Weights,
) -> Result<Description> {
    config.check_arguments(APPLIED, WITHOUT_EFFECT, MUST_BE_OFF)?;
    apply(config.given, &mut arguments)?;
    set(&mut arguments.pos_embed, positions(config.given)?);
    let sizes = config.sizes(None, DYNAMIC.contains(&name))?;
    let classes = config.classes()?;
    let filter = filter(name);
    let dynamic = truth(config.given, "dynamic_img_size").unwrap_or(DYNAMIC.contains(&name));
    let patch = arguments.patch_size;
    let fitting = Fitting::Timm {
        configured: stored_grid(sizes.stored, patch, PATCH, weights),
        model: dynamic.then(|| [0, 1].map(|axis| sizes.model[axis] / patch[axis])),
        filter,
    };
    let image = image_size.unwrap_or(sizes.image);
    let fitting = arguments.pos_embed.then_some(fitting);
    let vit = assemble(config, &arguments, fitting, image, classes.count)?;
    check_padding(config, &vit)?;
    let mut ignored = vec![(
        "pre_logits.*",
        "timm dropped the representation layer and skips its tensors",
    )];
    if name.contains("siglip") && arguments.global_pool != GlobalPool::Map {
        ignored.push(("attn_pool.*", "the architecture pools by the mean instead"));
    }
    let vit = Vit {
        patch_filter: Some(filter),
        ..vit
    };
    config.description(name, family(name), &names::TIMM, vit, classes, &ignored)
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

/// Returns the filter with which timm fits stored positions and patches to the architecture.
fn filter(name: &str) -> Filter {
    match name {
        "vit_base_patch16_radio_v3" | "vit_huge_patch16_radio_v3" => Filter::LinearAligned,
        _ if name.contains("radio") || name.contains("flexi") => Filter::Linear,
        _ => Filter::CubicAntialiased,
    }
}

/// Arguments that [`apply`] and [`Config`] read.
pub(super) const APPLIED: &[&str] = &[
    "act_layer",
    "attn_layer",
    "class_token",
    "depth",
    "dynamic_img_pad",
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

/// Replaces the architecture's arguments by the given ones, but for `pos_embed`.
pub(super) fn apply(given: Fields<'_>, arguments: &mut Arguments) -> Result<()> {
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
    set(&mut arguments.qkv_bias, truth(given, "qkv_bias"));
    set(&mut arguments.proj_bias, truth(given, "proj_bias"));
    set(&mut arguments.class_token, truth(given, "class_token"));
    set(&mut arguments.reg_tokens, given.count("reg_tokens")?);
    set(&mut arguments.no_embed_class, truth(given, "no_embed_class"));
    set(&mut arguments.pre_norm, truth(given, "pre_norm"));
    set(&mut arguments.final_norm, truth(given, "final_norm"));
    set(
        &mut arguments.pool_include_prefix,
        truth(given, "pool_include_prefix"),
    );
    set(&mut arguments.qk_norm, truth(given, "qk_norm"));
    set(&mut arguments.scale_attn_norm, truth(given, "scale_attn_norm"));
    set(&mut arguments.scale_mlp_norm, truth(given, "scale_mlp_norm"));
    set(&mut arguments.act_layer, activation(given)?);
    set(&mut arguments.global_pool, global_pool(given)?);
    set(&mut arguments.layer_scale, truth(given, "init_values"));
    if given.has("fc_norm") {
        arguments.fc_norm = given.get("fc_norm").map(is_true);
    }
    if given.has("norm_layer") {
        arguments.norm_layer = norm(given, "norm_layer")?.unwrap_or(LAYER_NORM);
    }
    if given.has("embed_norm_layer") {
        arguments.embed_norm_layer = norm(given, "embed_norm_layer")?;
    }
    Ok(())
}

fn activation(given: Fields<'_>) -> Result<Option<Activation>> {
    if !given.has("act_layer") {
        return Ok(None);
    }
    let name = given.text("act_layer")?.unwrap_or_default();
    match name.to_lowercase().as_str() {
        "" | "gelu" => Ok(Some(Activation::GeluErf)),
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

/// Returns the description of the layers. Without `fitting`, patches have no table of positions.
pub(super) fn assemble(
    config: Config<'_>,
    arguments: &Arguments,
    fitting: Option<Fitting>,
    image: [usize; 2],
    classes: usize,
) -> Result<Vit> {
    let wrong = |reason: &str| config.error(reason);
    let prefix = usize::from(arguments.class_token) + usize::from(arguments.distilled) + arguments.reg_tokens;
    let width = (arguments.embed_dim as f64 * arguments.mlp_ratio) as usize;
    let blocks = blocks(arguments).map_err(|reason| wrong(&reason.to_string()))?;
    let plain = Mlp::Plain(arguments.act_layer);
    let (mlp, hidden) = match (arguments.mlp_layer, arguments.act_layer) {
        // Parallel blocks have their own network.
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
        patch_filter: None,
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
        positions: fitting.map(|fitting| Positions::Table {
            prefix: if arguments.no_embed_class { 0 } else { prefix },
            fitting,
        }),
        rotary: None,
        hierarchy: None,
        relative: None,
        pre_norm: arguments.pre_norm,
        qkv_bias: [arguments.qkv_bias; 3],
        projection_bias: arguments.proj_bias,
        mlp_bias: arguments.proj_bias,
        // In a block with norms at the end, the norms' weights are the scales.
        layer_scale: [arguments.layer_scale && blocks.form != BlockForm::PostNorm; 2],
        norm: arguments.final_norm && !fc_norm,
        pooling,
        pooled_norm: arguments.final_norm && fc_norm && !arguments.distilled,
        neck: Neck::None,
        classes,
    })
}

/// Returns the form of the architecture's blocks, or the reason why it is not supported.
fn blocks(arguments: &Arguments) -> Result<Blocks, Invalid> {
    let form = arguments.block_fn;
    let parallel = form == BlockForm::Parallel;
    // timm's parallel blocks ignore `attn_layer`.
    let differential = if parallel {
        arguments.differential_block
    } else {
        arguments.differential
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
