//! Reads open_clip's `open_clip_config.json` and tensor names, for CLIP models whose towers are both open_clip's own.

use std::path::Path;

use serde_json::{Value, json};

use super::description::Description;
use super::fields::Fields;
use super::info::{Family, Library};
use super::names::{self, Projection};
use super::norm::{Norm, NormKind};
use super::positions::{Filter, Fitting};
use super::text::spec::{TextPooling, TextSpec, TextTrunk, TokenizerKind};
use super::vit::{Blocks, Mlp, Neck, Pooling, Positions, Vit};
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::image::{Preprocess, TimmOptions};
use crate::labels::Labels;
use crate::ops::Activation;
use crate::outputs::Scores;
use hipvit_files::json::is_true;

/// Key that identifies a configuration of open_clip.
pub(super) const MODEL: &str = "model_cfg";
const VISION: &str = "vision_cfg";
const TEXT: &str = "text_cfg";
const PREPROCESS: &str = "preprocess_cfg";
/// Keys of the arguments of a tower's activation and norms.
const ACTIVATION: &str = "act_kwargs";
const NORM: &str = "norm_kwargs";

/// PyTorch's default epsilon of a norm.
const EPSILON: f64 = 1e-5;
/// The library's default of `eos_id`.
const DEFAULT_END: usize = 2;
/// OpenAI's mean and standard deviation, the library's defaults.
const MEAN: [f64; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const STD: [f64; 3] = [0.268_629_54, 0.261_302_58, 0.275_777_11];

/// Keys that are supported. Any other key must have its default.
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
    ACTIVATION,
    NORM,
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
    "eos_id",
    // Read with the tokenizer, see `text::open_clip`.
    "hf_tokenizer_name",
    "tokenizer_kwargs",
    "tokenizer_mode",
    ACTIVATION,
    NORM,
];
/// Keys that have no effect without another key, which is rejected.
const WITHOUT_EFFECT: &[&str] = &[
    "attn_pooler_heads",
    "attn_pooler_queries",
    "hf_model_pretrained",
    "hf_pooler_type",
    "hf_proj_type",
    "pad_id",
    "timm_drop",
    "timm_drop_path",
    "timm_model_pretrained",
    "timm_pool",
    "timm_proj",
    "timm_proj_bias",
];
/// Keys that may have the library's default.
const DEFAULTS: &[(&str, &str)] = &[
    ("block_type", "default"),
    ("pos_embed_type", "learnable"),
    ("proj_type", "linear"),
];

/// Describes the model in `config`, and its preprocessing.
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
    let quick = model.flag("quick_gelu")?.unwrap_or(false);
    let configured = vision.extent("image_size")?.unwrap_or([224, 224]);
    let image = image_size.unwrap_or(configured);
    let preprocess = preprocess(config, image)?;
    let mut vit = trunk(vision, [configured, image], quick)?;
    vit.neck = Neck::Projection { width };
    let text = self::text(model, text, quick, width, weights)?;
    let description = Description {
        library: Library::OpenClip,
        family: Family::Clip,
        architecture: "CLIP".to_owned(),
        vit,
        depth: None,
        text: Some(text),
        names: &names::OPEN_CLIP,
        prefixes: &["visual."],
        ignored: vec![("*attn_mask", "a buffer that masks later tokens")],
        labels: Labels::default(),
        multi_label: false,
    };
    Ok((description, preprocess))
}

/// Returns an error for unknown keys, which could change the model.
fn check_keys(fields: Fields<'_>, known: &[&str]) -> Result<()> {
    let is_set = |key: &&str| match fields.get(key) {
        Some(Value::String(text)) if DEFAULTS.contains(&(*key, text.as_str())) => false,
        value => value.is_some_and(is_true),
    };
    let is_known = |key: &&str| known.contains(key) || WITHOUT_EFFECT.contains(key);
    match fields.keys().filter(is_set).find(|key| !is_known(key)) {
        Some(key) => Err(fields.error(key, "is not supported")),
        None => Ok(()),
    }
}

/// Checks that the value of `key` is supported.
fn check_text(fields: Fields<'_>, key: &str, supported: &[&str]) -> Result<()> {
    match fields.text(key)? {
        Some(other) if !supported.contains(&other) => {
            Err(fields.error(key, format_args!("is \"{other}\", which is not supported")))
        }
        _ => Ok(()),
    }
}

/// Reads the activation of a tower's feed-forward networks. `quick_gelu` applies to the whole model, `act_kwargs` to
/// the tower.
fn activation(tower: Fields<'_>, quick: bool) -> Result<Activation> {
    let arguments = tower.object_or_empty(ACTIVATION)?;
    let other = arguments.keys().find(|key| quick || *key != "approximate");
    if let Some(key) = other {
        return Err(tower.error(ACTIVATION, format_args!("has `{key}`, which is not supported")));
    }
    match arguments.text("approximate")? {
        None | Some("none") if quick => Ok(Activation::QuickGelu),
        None | Some("none") => Ok(Activation::GeluErf),
        Some("tanh") => Ok(Activation::GeluTanh),
        Some(other) => Err(arguments.error(
            "approximate",
            format_args!("is \"{other}\", which is not supported"),
        )),
    }
}

/// Reads the epsilon of a tower's norms.
fn epsilon(tower: Fields<'_>) -> Result<f64> {
    let arguments = tower.object_or_empty(NORM)?;
    match arguments.keys().find(|key| *key != "eps") {
        Some(key) => Err(tower.error(NORM, format_args!("has `{key}`, which is not supported"))),
        None => Ok(arguments.number("eps")?.unwrap_or(EPSILON)),
    }
}

fn trunk(config: Fields<'_>, [configured, image]: [[usize; 2]; 2], quick: bool) -> Result<Vit> {
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
        mlp: Mlp::Plain(activation(config, quick)?),
        norms: Norm {
            kind: NormKind::Layer,
            epsilon: epsilon(config)?,
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
        hierarchy: None,
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
    quick: bool,
    width: usize,
    weights: &Weights,
) -> Result<TextSpec> {
    check_text(config, "pool_type", &["argmax", "eos"])?;
    let pooling = match config.text("pool_type")? {
        Some("eos") => TextPooling::First(config.count("eos_id")?.unwrap_or(DEFAULT_END) as u32),
        _ => TextPooling::Largest,
    };
    let context = config.size("context_length")?.unwrap_or(77);
    let dim = config.size("width")?.unwrap_or(512);
    let trunk = TextTrunk {
        context,
        dim,
        depth: config.count("layers")?.unwrap_or(12),
        heads: config.size("heads")?.unwrap_or(8),
        hidden: (dim as f64 * config.ratio("mlp_ratio")?.unwrap_or(4.0)) as usize,
        activation: activation(config, quick)?,
        epsilon: epsilon(config)?,
        causal: true,
        layer_scale: config.number("ls_init_value")?.is_some(),
    };
    let projection_bias = config.flag("proj_bias")?.unwrap_or(false);
    // The class with a separate text tower stores its tensors under one prefix.
    let together = if weights.is_recording() {
        model.flag("custom_text")?.unwrap_or(false)
    } else {
        weights.shape("text.token_embedding.weight").is_some()
    };
    let (prefix, projection) = if together {
        ("text.", "text.text_projection")
    } else {
        ("", "text_projection")
    };
    Ok(TextSpec {
        trunk: trunk.vit(),
        names: &names::OPEN_CLIP_TEXT,
        prefix,
        token_embedding: format!("{prefix}token_embedding.weight"),
        position_embedding: format!("{prefix}positional_embedding"),
        context,
        vocabulary: config.size("vocab_size")?.unwrap_or(49_408),
        pooling,
        projection: if projection_bias {
            Projection::Layer(projection)
        } else {
            Projection::Matrix(projection)
        },
        projection_bias,
        width,
        scores: if model.number("init_logit_bias")?.is_some() {
            Scores::Sigmoid
        } else {
            Scores::Softmax
        },
        tokenizer: TokenizerKind::OpenClip,
    })
}

/// Reads the library's transform, which is timm's without a margin.
fn preprocess(config: Fields<'_>, [height, width]: [usize; 2]) -> Result<Preprocess> {
    let rules = config.object_or_empty(PREPROCESS)?;
    check_text(rules, "mode", &["RGB"])?;
    check_text(rules, "resize_mode", &["shortest", "squash", ""])?;
    check_text(rules, "interpolation", &["bicubic", "bilinear", "random", ""])?;
    // Values that are falsy in Python mean the default.
    let or = |key: &str, default: [f64; 3]| match rules.get(key).filter(|value| is_true(value)) {
        Some(value) => value.clone(),
        None => json!(default),
    };
    let crop = match rules.text("resize_mode")? {
        Some("squash") => "squash",
        _ => "center",
    };
    let interpolation = match rules.text("interpolation")? {
        // For an image that is not square, the library resizes with its default filter.
        Some("bilinear") if crop == "squash" || height == width => "bilinear",
        _ => "bicubic",
    };
    let rules = json!({
        "input_size": [3, height, width],
        "mean": or("mean", MEAN),
        "std": or("std", STD),
        "interpolation": interpolation,
        "crop_pct": 1.0,
        "crop_mode": crop,
    });
    let file: &Path = config.file();
    let options = TimmOptions {
        input_size: Some((height, width)),
        use_test_size: false,
    };
    Ok(Preprocess::from_timm(file, &rules, &options)?)
}

/// Checks that the configuration is open_clip's.
pub(super) fn check(config: Fields<'_>) -> Result<()> {
    match config.object(MODEL)? {
        Some(_) => Ok(()),
        None => Err(Error::config(config.file(), format!("has no `{MODEL}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(value: &Value) -> Result<(Vit, TextSpec), String> {
        let fields = Fields::new(Path::new("open_clip_config.json"), value).unwrap();
        let weights = Weights::new(Path::new("open_clip_model.safetensors"));
        let (description, _) = describe(fields, None, &weights).map_err(|error| error.to_string())?;
        Ok((description.vit, description.text.unwrap()))
    }

    fn model(vision: &Value, text: &Value) -> Value {
        json!({ "model_cfg": { "embed_dim": 8, "vision_cfg": vision, "text_cfg": text } })
    }

    #[test]
    fn keys_with_the_librarys_defaults_pass() {
        let vision = json!({
            "pos_embed_type": "learnable", "block_type": null, "timm_pool": "avg", "timm_proj": "linear", "timm_drop": 0.0,
            "attn_pooler_queries": 256, "attn_pooler_heads": 8, "attentional_pool": false, "qk_norm": false,
            "norm_kwargs": { "eps": 1e-6 }, "act_kwargs": { "approximate": "tanh" },
        });
        let text = json!({
            "proj_type": "linear", "pad_id": 0, "hf_proj_type": "mlp", "hf_pooler_type": "mean_pooler",
            "hf_model_pretrained": true, "embed_cls": false, "pool_type": "eos", "eos_id": 7,
        });
        let (vit, text) = described(&model(&vision, &text)).unwrap();
        assert_eq!(
            (vit.norms.epsilon, vit.mlp),
            (1e-6, Mlp::Plain(Activation::GeluTanh))
        );
        assert_eq!(
            (text.trunk.norms.epsilon, text.trunk.mlp),
            (1e-5, Mlp::Plain(Activation::GeluErf))
        );
        assert_eq!(text.pooling, TextPooling::First(7));
    }

    #[test]
    fn keys_that_the_library_follows_are_refused_by_name() {
        let none = json!({});
        for (vision, text, expected) in [
            (
                json!({ "pos_embed_type": "sin_cos_2d" }),
                none.clone(),
                "`vision_cfg.pos_embed_type` is not supported",
            ),
            (
                json!({ "qk_norm": true }),
                none.clone(),
                "`vision_cfg.qk_norm` is not supported",
            ),
            (
                json!({ "norm_kwargs": { "bias": false } }),
                none.clone(),
                "`vision_cfg.norm_kwargs` has `bias`",
            ),
            (
                none.clone(),
                json!({ "act_kwargs": { "x": 1 } }),
                "`text_cfg.act_kwargs` has `x`",
            ),
            (
                none.clone(),
                json!({ "proj_type": "none" }),
                "`text_cfg.proj_type` is not supported",
            ),
            (
                none.clone(),
                json!({ "pool_type": "last" }),
                "`text_cfg.pool_type` is \"last\", which is not supported",
            ),
        ] {
            let error = described(&model(&vision, &text)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let mut config = model(&none, &none);
        config["preprocess_cfg"] = json!({ "interpolation": "nearest" });
        let error = described(&config).unwrap_err();
        assert!(
            error.contains("`preprocess_cfg.interpolation` is \"nearest\""),
            "{error}"
        );
    }

    #[test]
    fn one_number_is_the_mean_of_all_channels_and_zero_the_default() {
        let rules = |rules: Value| {
            let value = json!({ "preprocess_cfg": rules });
            preprocess(
                Fields::new(Path::new("open_clip_config.json"), &value).unwrap(),
                [8, 8],
            )
            .unwrap()
        };
        let default = rules(json!({}));
        assert_eq!(rules(json!({ "mean": 0.5, "std": 0.25 })).mean(), [0.5; 3]);
        assert_eq!(rules(json!({ "mean": 0, "std": "" })).mean(), default.mean());
        assert_eq!(
            rules(json!({ "interpolation": "random" })).resize(),
            default.resize()
        );
    }
}
