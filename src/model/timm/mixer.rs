//! Reads timm's `MlpMixer`: MLP-Mixer, ResMLP and gMLP, in which linear layers over the tokens replace attention.

use serde_json::Value;

use super::architectures::EPSILON;
use super::arguments::set;
use super::config::{Config, check_channels, truth};
use crate::error::{Error, Result};
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::info::Family;
use crate::model::invalid::Invalid;
use crate::model::names;
use crate::model::norm::{Norm, NormKind};
use crate::model::vit::{BlockForm, Blocks, Mlp, Neck, Pooling, Vit};
use crate::ops::Activation;

/// Arguments that only affect training.
const WITHOUT_EFFECT: &[&str] = &["drop_path_rate", "drop_rate", "nlhb", "proj_drop_rate"];

/// Arguments that [`apply`] and [`Config`] read.
pub(super) const APPLIED: &[&str] = &[
    "embed_dim",
    "global_pool",
    "img_size",
    "in_chans",
    "mlp_ratio",
    "num_blocks",
    "num_classes",
    "patch_size",
    "stem_norm",
];

/// Arguments of timm's `MlpMixer` that affect inference, by timm's names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) patch_size: [usize; 2],
    pub(super) num_blocks: usize,
    pub(super) embed_dim: usize,
    /// Widths of the networks over tokens and over channels, as multiples of `embed_dim`.
    pub(super) mlp_ratio: [f64; 2],
    pub(super) block: Block,
    pub(super) stem_norm: bool,
}

/// timm's `block_layer`, with its `mlp_layer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    Mixer,
    /// `Mixer` with `GluMlp`.
    GluMixer,
    ResMlp,
    SpatialGating,
}

/// Name, patch, blocks, channels, block. A test compares the table with timm's own registry.
const TABLE: &[(&str, usize, usize, usize, Block)] = &[
    ("mixer_s32_224", 32, 8, 512, Block::Mixer),
    ("mixer_s16_224", 16, 8, 512, Block::Mixer),
    ("mixer_b32_224", 32, 12, 768, Block::Mixer),
    ("mixer_b16_224", 16, 12, 768, Block::Mixer),
    ("mixer_l32_224", 32, 24, 1024, Block::Mixer),
    ("mixer_l16_224", 16, 24, 1024, Block::Mixer),
    ("gmixer_12_224", 16, 12, 384, Block::GluMixer),
    ("gmixer_24_224", 16, 24, 384, Block::GluMixer),
    ("resmlp_12_224", 16, 12, 384, Block::ResMlp),
    ("resmlp_24_224", 16, 24, 384, Block::ResMlp),
    ("resmlp_36_224", 16, 36, 384, Block::ResMlp),
    ("resmlp_big_24_224", 8, 24, 768, Block::ResMlp),
    ("gmlp_ti16_224", 16, 30, 128, Block::SpatialGating),
    ("gmlp_s16_224", 16, 30, 256, Block::SpatialGating),
    ("gmlp_b16_224", 16, 30, 512, Block::SpatialGating),
];

/// Iterates over the names of all architectures.
pub(super) fn all() -> impl Iterator<Item = String> {
    TABLE.iter().map(|row| row.0.to_owned())
}

/// Returns the arguments of `name`, or `None` if it is not one of these architectures.
pub(super) fn lookup(name: &str) -> Option<Arguments> {
    let found = TABLE.iter().find(|row| row.0 == name);
    found.map(|&(_, patch, num_blocks, embed_dim, block)| Arguments {
        patch_size: [patch; 2],
        num_blocks,
        embed_dim,
        mlp_ratio: match block {
            Block::Mixer => [0.5, 4.0],
            Block::GluMixer => [1.0, 4.0],
            Block::ResMlp => [4.0; 2],
            Block::SpatialGating => [6.0; 2],
        },
        block,
        stem_norm: false,
    })
}

/// Describes a model of this class. The arguments are those of [`super::describe`].
pub(super) fn describe(
    config: Config<'_>,
    name: &str,
    mut arguments: Arguments,
    image_size: Option<[usize; 2]>,
) -> Result<Description> {
    config.check_arguments(APPLIED, WITHOUT_EFFECT, &[])?;
    apply(config.given, &mut arguments)?;
    let image = config.sizes(None, false)?.model;
    if let Some(asked) = image_size.filter(|asked| *asked != image) {
        let reason = format!(
            "{}×{} is not {}×{}, the model's own: the token-mixing weights of {name} require its number of tokens",
            asked[0], asked[1], image[0], image[1]
        );
        return Err(Error::argument("image size", reason));
    }
    let classes = config.classes()?;
    let vit = assemble(&arguments, image, classes.count);
    let vit = vit.map_err(|reason| config.error(reason))?;
    config.description(name, Family::Mixer, &names::MIXER, vit, classes, &[])
}

/// Replaces the architecture's arguments by the given ones.
pub(super) fn apply(given: Fields<'_>, arguments: &mut Arguments) -> Result<()> {
    check_channels(given)?;
    let a = arguments;
    set(&mut a.patch_size, given.extent("patch_size")?);
    set(&mut a.embed_dim, given.size("embed_dim")?);
    set(&mut a.num_blocks, given.count("num_blocks")?);
    set(&mut a.stem_norm, truth(given, "stem_norm"));
    set(&mut a.mlp_ratio, ratios(given, a.block)?);
    match given.text("global_pool")? {
        None | Some("avg") => Ok(()),
        Some(other) => {
            let reason = format_args!("is \"{other}\"; supported is \"avg\"");
            Err(given.error("global_pool", reason))
        }
    }
}

/// Reads one number, or for a mixer block, one each for tokens and channels.
fn ratios(given: Fields<'_>, block: Block) -> Result<Option<[f64; 2]>> {
    let pair = matches!(block, Block::Mixer | Block::GluMixer);
    let Some(value @ Value::Array(list)) = given.get("mlp_ratio").filter(|_| pair) else {
        return Ok(given.ratio("mlp_ratio")?.map(|ratio| [ratio; 2]));
    };
    let ratio = |value: &Value| value.as_f64().filter(|ratio| ratio.is_finite() && *ratio > 0.0);
    match list.iter().map(ratio).collect::<Option<Vec<_>>>().as_deref() {
        Some(&[tokens, channels]) => Ok(Some([tokens, channels])),
        _ => Err(given.unexpected("mlp_ratio", value, "a positive number or two")),
    }
}

fn assemble(a: &Arguments, image: [usize; 2], classes: usize) -> Result<Vit, Invalid> {
    let [of_tokens, of_channels] = a.mlp_ratio.map(|ratio| (a.embed_dim as f64 * ratio) as usize);
    if of_tokens == 0 {
        return Err("the network over the tokens has no channels".into());
    }
    let plain = Mlp::Plain(Activation::GeluErf);
    let even = of_tokens.is_multiple_of(2) && of_channels.is_multiple_of(2);
    let (form, mlp, hidden) = match a.block {
        Block::Mixer => (BlockForm::Mixer { hidden: of_tokens }, plain, of_channels),
        Block::ResMlp => (BlockForm::ResMlp, plain, of_channels),
        Block::SpatialGating if even => (BlockForm::SpatialGating, plain, of_channels),
        Block::GluMixer if even => {
            let hidden = of_tokens / 2;
            (BlockForm::Mixer { hidden }, Mlp::SwiGluGateLast, of_channels / 2)
        }
        Block::SpatialGating | Block::GluMixer => {
            return Err("a gate needs an even number of channels".into());
        }
    };
    let norms = Norm {
        kind: match a.block {
            Block::ResMlp => NormKind::Affine,
            _ => NormKind::Layer,
        },
        epsilon: EPSILON,
    };
    Ok(Vit {
        image,
        patch: a.patch_size,
        patch_filter: None,
        dim: a.embed_dim,
        depth: a.num_blocks,
        heads: 0,
        kv_heads: None,
        hidden,
        mlp,
        norms,
        patch_norm: a.stem_norm.then_some(norms),
        blocks: Blocks {
            form,
            ..Blocks::default()
        },
        patch_bias: true,
        class_token: false,
        distillation_token: false,
        registers: 0,
        positions: None,
        rotary: None,
        hierarchy: None,
        relative: None,
        pre_norm: false,
        qkv_bias: [true; 3],
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [a.block == Block::ResMlp; 2],
        norm: true,
        pooling: Pooling::Mean { skip: 0 },
        pooled_norm: false,
        neck: Neck::None,
        classes,
    })
}
