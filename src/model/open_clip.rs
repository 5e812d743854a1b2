//! open_clip's `open_clip_config.json` and tensor names: the CLIP models whose towers are both open_clip's own.

use std::path::Path;

use serde_json::json;

use super::fields::Fields;
use super::names::{self, Projection};
use super::positions::{Filter, Fitting};
use super::text::{TextPooling, TextSpec, TextTrunk, TokenizerKind};
use super::vit::{Blocks, Mlp, Neck, Norm, NormKind, Pooling, Positions, Vit};
use super::weights::Weights;
use super::{Description, Family, Library};
use crate::error::{Error, Result};
use crate::image::{Preprocess, TimmOptions};
use crate::labels::Labels;
use crate::ops::Activation;
use crate::outputs::Scores;

/// The key that tells open_clip's configuration from others.
pub(super) const MODEL: &str = "model_cfg";
const VISION: &str = "vision_cfg";
const TEXT: &str = "text_cfg";
const PREPROCESS: &str = "preprocess_cfg";

/// PyTorch's default of a norm.
const EPSILON: f64 = 1e-5;
/// OpenAI's, the library's default.
const MEAN: [f64; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const STD: [f64; 3] = [0.268_629_54, 0.261_302_58, 0.275_777_11];

/// The keys that are read. Any other has its default, or the model is not supported.
const MODEL_KEYS: &[&str] = &[
    "embed_dim",
    "quick_gelu",
    "custom_text",
    "init_logit_scale",
    "init_logit_bias",
    VISION,
    TEXT,
];
const VISION_KEYS: &[&str] = &[
    "image_size",
    "patch_size",
    "width",
    "layers",
    "head_width",
    "mlp_ratio",
    "ls_init_value",
    "no_ln_pre",
    "pool_type",
    "patch_dropout",
    "output_tokens",
    "final_ln_after_pool",
];
const TEXT_KEYS: &[&str] = &[
    "context_length",
    "vocab_size",
    "width",
    "heads",
    "layers",
    "mlp_ratio",
    "ls_init_value",
    "pool_type",
    "proj_bias",
    "output_tokens",
    "final_ln_after_pool",
    "tokenizer_kwargs",
];

/// The model that `config` describes, its image rules beside it.
pub(super) fn describe(
    config: Fields<'_>,
    image_size: Option<[usize; 2]>,
    weights: &Weights,
) -> Result<(Description, Preprocess)> {
    let model = config.object_or_empty(MODEL)?;
    check_keys(model, MODEL_KEYS)?;
    let vision = model.object_or_empty(VISION)?;
    check_keys(vision, VISION_KEYS)?;
    let text = model.object_or_empty(TEXT)?;
    check_keys(text, TEXT_KEYS)?;
    let width = model.size("embed_dim")?;
    let width = width.ok_or_else(|| model.error("embed_dim", "is missing"))?;
    let activation = match model.flag("quick_gelu")?.unwrap_or(false) {
        true => Activation::QuickGelu,
        false => Activation::GeluErf,
    };
    let configured = vision.extent("image_size")?.unwrap_or([224, 224]);
    let image = image_size.unwrap_or(configured);
    let preprocess = preprocess(config, image)?;
    let mut vit = trunk(vision, [configured, image], activation)?;
    vit.neck = Neck::Projection { width };
    let text = self::text(model, text, activation, width, weights)?;
    let description = Description {
        library: Library::OpenClip,
        family: Family::Clip,
        architecture: "CLIP".to_owned(),
        vit,
        text: Some(text),
        names: &names::OPEN_CLIP,
        prefixes: &["visual."],
        ignored: vec![("*attn_mask", "a buffer of which tokens come later")],
        labels: Labels::default(),
        multi_label: false,
    };
    Ok((description, preprocess))
}

/// Refuses keys that are not known, which would change the model.
fn check_keys(fields: Fields<'_>, known: &[&str]) -> Result<()> {
    let set = |key: &&str| !matches!(fields.get(key), None | Some(serde_json::Value::Bool(false)));
    match fields.keys().filter(set).find(|key| !known.contains(key)) {
        Some(key) => Err(fields.error(key, "is not supported")),
        None => Ok(()),
    }
}

/// The value of `key` is one of those that are supported.
fn check_text(fields: Fields<'_>, key: &str, supported: &[&str]) -> Result<()> {
    match fields.text(key)? {
        Some(other) if !supported.contains(&other) => {
            Err(fields.error(key, format_args!("is \"{other}\", which is not supported")))
        }
        _ => Ok(()),
    }
}

fn trunk(config: Fields<'_>, [configured, image]: [[usize; 2]; 2], activation: Activation) -> Result<Vit> {
    check_text(config, "pool_type", &["tok"])?;
    let patch = config.extent("patch_size")?.unwrap_or([16, 16]);
    let dim = config.size("width")?.unwrap_or(768);
    let head_width = config.size("head_width")?.unwrap_or(64);
    if !dim.is_multiple_of(head_width) {
        let reason = format_args!("is {head_width}, which does not divide {dim} channels");
        return Err(config.error("head_width", reason));
    }
    Ok(Vit {
        image,
        patch,
        patch_filter: None,
        dim,
        depth: config.count("layers")?.unwrap_or(12),
        heads: dim / head_width,
        kv_heads: None,
        hidden: (dim as f64 * config.ratio("mlp_ratio")?.unwrap_or(4.0)) as usize,
        mlp: Mlp::Plain(activation),
        norms: Norm {
            kind: NormKind::Layer,
            epsilon: EPSILON,
        },
        blocks: Blocks::default(),
        patch_bias: false,
        patch_norm: None,
        class_token: true,
        distillation_token: false,
        registers: 0,
        positions: Some(Positions::Table {
            prefix: 1,
            fitting: Fitting::Timm {
                configured: [0, 1].map(|axis| configured[axis] / patch[axis]),
                model: None,
                filter: Filter::CubicAntialiased,
            },
        }),
        rotary: None,
        relative: None,
        pre_norm: !config.flag("no_ln_pre")?.unwrap_or(false),
        qkv_bias: [true; 3],
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [config.number("ls_init_value")?.is_some(); 2],
        norm: false,
        pooling: Pooling::Class,
        pooled_norm: true,
        neck: Neck::None,
        classes: 0,
    })
}

fn text(
    model: Fields<'_>,
    config: Fields<'_>,
    activation: Activation,
    width: usize,
    weights: &Weights,
) -> Result<TextSpec> {
    check_text(config, "pool_type", &["argmax"])?;
    let context = config.size("context_length")?.unwrap_or(77);
    let dim = config.size("width")?.unwrap_or(512);
    let trunk = TextTrunk {
        context,
        dim,
        depth: config.count("layers")?.unwrap_or(12),
        heads: config.size("heads")?.unwrap_or(8),
        hidden: (dim as f64 * config.ratio("mlp_ratio")?.unwrap_or(4.0)) as usize,
        activation,
        epsilon: EPSILON,
        causal: true,
        layer_scale: config.number("ls_init_value")?.is_some(),
    };
    let projection_bias = config.flag("proj_bias")?.unwrap_or(false);
    // The class with a text tower of its own keeps it together.
    let together = weights.shape("text.token_embedding.weight").is_some();
    let (prefix, projection) = match together {
        true => ("text.", "text.text_projection"),
        false => ("", "text_projection"),
    };
    Ok(TextSpec {
        trunk: trunk.vit(),
        names: &names::OPEN_CLIP_TEXT,
        prefix,
        token_embedding: format!("{prefix}token_embedding.weight"),
        position_embedding: format!("{prefix}positional_embedding"),
        context,
        vocabulary: config.size("vocab_size")?.unwrap_or(49_408),
        pooling: TextPooling::Largest,
        projection: match projection_bias {
            true => Projection::Layer(projection),
            false => Projection::Matrix(projection),
        },
        projection_bias,
        width,
        scores: match model.number("init_logit_bias")?.is_some() {
            true => Scores::Sigmoid,
            false => Scores::Softmax,
        },
        tokenizer: TokenizerKind::Clip,
        padding: None,
    })
}

/// The library's transform is timm's, without a margin.
fn preprocess(config: Fields<'_>, [height, width]: [usize; 2]) -> Result<Preprocess> {
    let rules = config.object_or_empty(PREPROCESS)?;
    check_text(rules, "mode", &["RGB"])?;
    check_text(rules, "resize_mode", &["shortest", "squash"])?;
    let or = |key: &str, default| rules.get(key).cloned().unwrap_or(default);
    let crop = match rules.text("resize_mode")? {
        Some("squash") => "squash",
        _ => "center",
    };
    let rules = json!({
        "input_size": [3, height, width],
        "mean": or("mean", json!(MEAN)),
        "std": or("std", json!(STD)),
        "interpolation": or("interpolation", json!("bicubic")),
        "crop_pct": 1.0,
        "crop_mode": crop,
    });
    let file: &Path = config.file();
    let options = TimmOptions {
        input_size: Some((height, width)),
        use_test_size: false,
    };
    Preprocess::from_timm(file, &rules, &options)
}

/// Whether the configuration has what open_clip's have.
pub(super) fn check(config: Fields<'_>) -> Result<()> {
    match config.object(MODEL)? {
        Some(_) => Ok(()),
        None => Err(Error::config(config.file(), format!("has no `{MODEL}`"))),
    }
}
