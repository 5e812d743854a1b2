//! Reads transformers' `config.json`. `model_type` names the family, and `architectures` the class, which determines
//! the head.
//!
//! Missing keys have the library's defaults. A key that is `null` is an error if it is one in transformers 5.23.

mod aimv2;
mod beit;
mod classes;
mod dinov3;
mod text;

use serde_json::Value;

use super::fields::Fields;
use super::names::{self, Names};
use super::positions::{Filter, Fitting};
use super::vit::{Blocks, Mlp, Neck, Norm, NormKind, Pooling, Positions, Vit};
use super::weights::Weights;
use super::{Description, Family, Library, near};
use crate::error::Result;
use crate::ops::Activation;
use classes::Classes;

const MASK_TOKEN: (&str, &str) = ("*embeddings.mask_token", "the mask token is for pre-training");
const POSITION_IDS: (&str, &str) = ("*position_ids", "a buffer of consecutive numbers");
const TEXT: &[(&str, &str)] = &[
    (
        "text_model.*",
        "the text tower does not affect an image's embedding",
    ),
    (
        "text_projection.*",
        "the text tower does not affect an image's embedding",
    ),
    ("logit_scale", "it scales similarities between images and texts"),
    ("logit_bias", "it shifts similarities between images and texts"),
];
const POOLER: &str = "the classifier reads the class token, not the pooler";
const POST_NORM: &str = "the classifier reads the tokens before this norm";
const POOLING_HEAD: &str = "the classifier reads the mean of the tokens, not the pooling head";
const PROJECTION: &str = "the vision model ends before the projection";

/// Classes that can be built, which determine what follows the trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The trunk with its own pooling.
    Model,
    /// The trunk, and CLIP's or SigLIP's text tower.
    TwoTowers,
    /// CLIP's trunk and projection.
    WithProjection,
    Classifier,
    /// DeiT's two classifiers.
    WithTeacher,
}

/// Differences between the configurations of the families.
struct Kind {
    model_type: &'static str,
    family: Family,
    names: &'static Names,
    prefixes: &'static [&'static str],
    /// Class names in `architectures`, with their classes.
    classes: &'static [(&'static str, Class)],
    epsilon: f64,
    patch: usize,
    activation: Activation,
}

const VIT: Kind = Kind {
    model_type: "vit",
    family: Family::Vit,
    names: &names::VIT,
    prefixes: &["vit.", ""],
    classes: &[
        ("ViTModel", Class::Model),
        ("ViTForImageClassification", Class::Classifier),
    ],
    epsilon: 1e-12,
    patch: 16,
    activation: Activation::GeluErf,
};

const BEIT: Kind = Kind {
    model_type: "beit",
    family: Family::Beit,
    names: &names::BEIT,
    prefixes: &["beit.", ""],
    classes: &[
        ("BeitModel", Class::Model),
        ("BeitForImageClassification", Class::Classifier),
    ],
    ..VIT
};

const CLIP: Kind = Kind {
    model_type: "clip",
    family: Family::Clip,
    names: &names::CLIP,
    prefixes: &["vision_model.", ""],
    classes: &[
        ("CLIPModel", Class::TwoTowers),
        ("CLIPVisionModel", Class::Model),
        ("CLIPVisionModelWithProjection", Class::WithProjection),
        ("CLIPForImageClassification", Class::Classifier),
    ],
    epsilon: 1e-5,
    patch: 32,
    activation: Activation::QuickGelu,
};

const SIGLIP: Kind = Kind {
    model_type: "siglip",
    family: Family::Siglip,
    classes: &[
        ("SiglipModel", Class::TwoTowers),
        ("SiglipVisionModel", Class::Model),
        ("SiglipForImageClassification", Class::Classifier),
    ],
    epsilon: 1e-6,
    patch: 16,
    activation: Activation::GeluTanh,
    ..CLIP
};

/// SigLIP 2 with NaFlex, for images of any aspect ratio. Other models of SigLIP 2 have the type `siglip`.
const SIGLIP2: Kind = Kind {
    model_type: "siglip2",
    classes: &[
        ("Siglip2Model", Class::TwoTowers),
        ("Siglip2VisionModel", Class::Model),
        ("Siglip2ForImageClassification", Class::Classifier),
    ],
    ..SIGLIP
};

const DINOV2: Kind = Kind {
    model_type: "dinov2",
    family: Family::Dinov2,
    names: &names::DINOV2,
    prefixes: &["dinov2.", ""],
    classes: &[
        ("Dinov2Model", Class::Model),
        ("Dinov2ForImageClassification", Class::Classifier),
    ],
    epsilon: 1e-6,
    patch: 14,
    ..VIT
};

const DINOV3: Kind = Kind {
    model_type: "dinov3_vit",
    family: Family::Dinov3,
    names: &names::DINOV3,
    prefixes: &[""],
    classes: &[("DINOv3ViTModel", Class::Model)],
    epsilon: 1e-5,
    ..VIT
};

const AIMV2: Kind = Kind {
    model_type: "aimv2",
    family: Family::Aimv2,
    names: &names::AIMV2,
    classes: &[
        ("Aimv2Model", Class::TwoTowers),
        ("Aimv2VisionModel", Class::Model),
    ],
    epsilon: 1e-5,
    patch: 14,
    activation: Activation::Silu,
    ..CLIP
};

const KINDS: &[Kind] = &[
    VIT,
    Kind {
        model_type: "deit",
        family: Family::Deit,
        prefixes: &["deit.", ""],
        classes: &[
            ("DeiTModel", Class::Model),
            ("DeiTForImageClassification", Class::Classifier),
            ("DeiTForImageClassificationWithTeacher", Class::WithTeacher),
        ],
        ..VIT
    },
    DINOV2,
    Kind {
        model_type: "dinov2_with_registers",
        prefixes: &["dinov2_with_registers.", ""],
        classes: &[
            ("Dinov2WithRegistersModel", Class::Model),
            ("Dinov2WithRegistersForImageClassification", Class::Classifier),
        ],
        patch: 16,
        ..DINOV2
    },
    DINOV3,
    BEIT,
    CLIP,
    Kind {
        model_type: "clip_vision_model",
        ..CLIP
    },
    SIGLIP,
    Kind {
        model_type: "siglip_vision_model",
        ..SIGLIP
    },
    SIGLIP2,
    Kind {
        model_type: "siglip2_vision_model",
        ..SIGLIP2
    },
    AIMV2,
    Kind {
        model_type: "aimv2_vision_model",
        ..AIMV2
    },
];

/// Reads the configuration. `image` is the size of the input images.
///
/// `weights` shows whether the checkpoint has a pooler, because no key of the configuration does.
///
/// # Errors
///
/// Returns [`Error::Config`](crate::Error::Config) for a file and key that are not supported.
pub(super) fn describe(config: Fields<'_>, image: [usize; 2], weights: &Weights) -> Result<Description> {
    let kind = kind(config)?;
    let (architecture, class) = class(config, kind)?;
    let config = config.refusing_null();
    let vision = match kind.model_type {
        "clip" | "siglip" | "siglip2" | "aimv2" => tower_config(kind, config, "vision_config")?,
        _ => config,
    };
    check_layers(config)?;
    check_layers(vision)?;
    let classes = Classes::new(config)?;
    let count = match class {
        Class::Classifier | Class::WithTeacher => {
            classes.check(kind, class, weights)?;
            classes.count()
        }
        Class::Model | Class::TwoTowers | Class::WithProjection => 0,
    };
    let text = match class {
        Class::TwoTowers => text::spec(kind, config, weights)?,
        _ => None,
    };
    let mut ignored = match kind.family {
        Family::Clip | Family::Siglip | Family::Aimv2 => vec![POSITION_IDS],
        _ => vec![MASK_TOKEN],
    };
    match (kind.family, class) {
        (_, Class::TwoTowers) if text.is_none() => ignored.extend(TEXT),
        (Family::Vit | Family::Deit, Class::Classifier | Class::WithTeacher) => {
            ignored.extend([("*pooler.dense.weight", POOLER), ("*pooler.dense.bias", POOLER)]);
        }
        (Family::Clip, Class::Classifier) => {
            ignored.extend([
                ("*post_layernorm.weight", POST_NORM),
                ("*post_layernorm.bias", POST_NORM),
            ]);
        }
        (Family::Siglip, Class::Classifier) => {
            ignored.extend([("vision_model.head.*", POOLING_HEAD), ("head.*", POOLING_HEAD)]);
        }
        (Family::Dinov3, _) if config.count("num_register_tokens")?.unwrap_or(0) == 0 => {
            ignored.push(("embeddings.register_tokens", "there are none"));
        }
        (Family::Beit, _) => ignored.push(("*relative_position_index", "a buffer that the grid determines")),
        (Family::Clip, Class::Model) => ignored.push(("visual_projection.weight", PROJECTION)),
        _ => {}
    }
    check_channels(vision)?;
    let (mut vit, names) = match kind.family {
        Family::Aimv2 => (aimv2::trunk(kind, vision, image)?, kind.names),
        Family::Dinov3 => (dinov3::trunk(kind, config, image)?, dinov3::names(weights)),
        Family::Beit => (beit::trunk(kind, class, config, image, weights)?, kind.names),
        _ => (trunk(kind, class, vision, image)?, kind.names),
    };
    if let "siglip2" | "siglip2_vision_model" = kind.model_type {
        vit.positions = Some(positions_per_image(vision, &vit)?);
    }
    vit.classes = count;
    vit.neck = neck(kind, class, config, vision, vit.dim, weights)?;
    Ok(Description {
        library: Library::Transformers,
        family: kind.family,
        architecture: architecture.to_owned(),
        vit,
        text,
        names,
        prefixes: kind.prefixes,
        ignored,
        labels: classes.labels(count),
        multi_label: config.get("problem_type").and_then(Value::as_str) == Some("multi_label_classification"),
    })
}

/// Checks that the configuration's family and class are supported.
pub(super) fn check_class(config: Fields<'_>) -> Result<()> {
    class(config, kind(config)?).map(drop)
}

fn kind(config: Fields<'_>) -> Result<&'static Kind> {
    let model_type = config.text("model_type")?.unwrap_or_default();
    KINDS
        .iter()
        .find(|kind| kind.model_type == model_type)
        .ok_or_else(|| {
            let known: Vec<String> = KINDS.iter().map(|kind| kind.model_type.to_owned()).collect();
            let supported = known.join(", ");
            let near = near(model_type, known);
            config.error(
                "model_type",
                format_args!("is \"{model_type}\", which is not supported{near}; supported are {supported}"),
            )
        })
}

fn class<'a>(config: Fields<'a>, kind: &Kind) -> Result<(&'a str, Class)> {
    let name = config
        .get("architectures")
        .and_then(|list| list.get(0))
        .and_then(Value::as_str)
        .ok_or_else(|| config.error("architectures", "is missing, so the model's head is unknown"))?;
    match kind.classes.iter().find(|(known, _)| *known == name) {
        Some((_, class)) => Ok((name, *class)),
        None => {
            let known: Vec<&str> = kind.classes.iter().map(|(known, _)| *known).collect();
            let reason = format_args!(
                "is \"{name}\"; supported for {} are {}",
                kind.model_type,
                known.join(", ")
            );
            Err(config.error("architectures", reason))
        }
    }
}

/// Returns the part of a two-tower configuration under `key`, `vision_config` or `text_config`.
///
/// Old CLIP files also have a `vision_config_dict`, which replaces `vision_config`. Other families ignore it.
fn tower_config<'a>(kind: &Kind, config: Fields<'a>, key: &'static str) -> Result<Fields<'a>> {
    let older = match key {
        "vision_config" => "vision_config_dict",
        _ => "text_config_dict",
    };
    match config.object(older)?.filter(|_| kind.family == Family::Clip) {
        Some(fields) => Ok(fields),
        None => config.object_or_empty(key),
    }
}

/// Returns an error if layers differ from each other.
fn check_layers(config: Fields<'_>) -> Result<()> {
    let key = "per_layer_config";
    match config.get(key) {
        None => Ok(()),
        Some(Value::Object(layers)) if layers.is_empty() => Ok(()),
        Some(_) => Err(config.error(key, "is not supported: all layers must be alike")),
    }
}

fn check_channels(config: Fields<'_>) -> Result<()> {
    match config.count("num_channels")? {
        None | Some(3) => Ok(()),
        Some(channels) => Err(config.error(
            "num_channels",
            format_args!("is {channels}; only 3 are supported"),
        )),
    }
}

fn trunk(kind: &Kind, class: Class, config: Fields<'_>, image: [usize; 2]) -> Result<Vit> {
    let (family, clip_like) = (kind.family, matches!(kind.family, Family::Clip | Family::Siglip));
    let sizes = match kind.model_type {
        // The library has no such key in these configurations.
        "siglip2" | "siglip2_vision_model" => config.accepting_null(),
        _ => config,
    };
    let configured = sizes.extent("image_size")?.unwrap_or([224, 224]);
    let patch = config.extent("patch_size")?.unwrap_or([kind.patch, kind.patch]);
    let dim = config.size("hidden_size")?.unwrap_or(768);
    let activation = activation(config, "hidden_act", kind.activation)?;
    let registers = match kind.model_type {
        "dinov2_with_registers" => config.count("num_register_tokens")?.unwrap_or(4),
        _ => 0,
    };
    let (mlp, hidden) = if family == Family::Dinov2 {
        let hidden = (dim as f64 * config.ratio("mlp_ratio")?.unwrap_or(4.0)) as usize;
        if config.flag("use_swiglu_ffn")?.unwrap_or(false) {
            // Two thirds, rounded up to a multiple of 8.
            (Mlp::SwiGluPacked, (hidden * 2 / 3).next_multiple_of(8))
        } else {
            (Mlp::Plain(activation), hidden)
        }
    } else {
        (
            Mlp::Plain(activation),
            config.size("intermediate_size")?.unwrap_or(3072),
        )
    };
    let heads = config.size("num_attention_heads")?.unwrap_or(12);
    let class_token = family != Family::Siglip;
    let distillation_token = family == Family::Deit;
    let pooling = match (family, class) {
        (_, Class::WithTeacher) => Pooling::ClassAndDistillation,
        (Family::Clip, Class::Classifier) => Pooling::Mean { skip: 1 },
        (Family::Siglip, Class::Classifier) => Pooling::Mean { skip: 0 },
        (Family::Dinov2, Class::Classifier) => Pooling::ClassAndMean,
        (Family::Siglip, _) if !config.flag("vision_use_head")?.unwrap_or(true) => {
            return Err(config.error(
                "vision_use_head",
                "is false, so the model makes no embedding of an image",
            ));
        }
        (Family::Siglip, _) => Pooling::Attention {
            skip: 0,
            heads,
            hidden,
            activation,
        },
        _ => Pooling::Class,
    };
    Ok(Vit {
        image,
        patch,
        patch_filter: None,
        dim,
        depth: config.count("num_hidden_layers")?.unwrap_or(12),
        heads,
        kv_heads: None,
        hidden,
        mlp,
        norms: Norm {
            kind: NormKind::Layer,
            epsilon: config.number("layer_norm_eps")?.unwrap_or(kind.epsilon),
        },
        patch_norm: None,
        blocks: Blocks::default(),
        patch_bias: family != Family::Clip,
        class_token,
        distillation_token,
        registers,
        positions: Some(Positions::Table {
            // The registers have no positions.
            prefix: usize::from(class_token) + usize::from(distillation_token),
            fitting: Fitting::Transformers {
                configured: [0, 1].map(|axis| configured[axis] / patch[axis]),
                // DINOv2 fits the table to every image, the others only on request.
                keep: family != Family::Dinov2 && image == configured,
                square_image: image[0] == image[1],
                filter: match kind.model_type {
                    "dinov2_with_registers" => Filter::CubicAntialiased,
                    _ => Filter::Cubic,
                },
            },
        }),
        rotary: None,
        relative: None,
        pre_norm: family == Family::Clip,
        qkv_bias: [clip_like || config.flag("qkv_bias")?.unwrap_or(true); 3],
        projection_bias: true,
        mlp_bias: true,
        layer_scale: [family == Family::Dinov2; 2],
        norm: family != Family::Clip,
        pooling,
        pooled_norm: family == Family::Clip && class != Class::Classifier,
        neck: Neck::None,
        classes: 0,
    })
}

/// Reads NaFlex's positions. Checks that images have the form and patches that the processor makes.
fn positions_per_image(config: Fields<'_>, vit: &Vit) -> Result<Positions> {
    let [patch, width] = vit.patch;
    let [height, made] = vit.image;
    if (patch, width) != (made, made) || height % patch != 1 {
        let reason = format_args!("is {patch}×{width}, but the processor makes patches of {made}×{made}");
        return Err(config.error("patch_size", reason));
    }
    let positions = config.size("num_patches")?.unwrap_or(256);
    match positions.isqrt() {
        side if side * side == positions => Ok(Positions::PerImage { side }),
        _ => Err(config.error(
            "num_patches",
            format_args!("is {positions}, which is not a square number of positions"),
        )),
    }
}

fn neck(
    kind: &Kind,
    class: Class,
    config: Fields<'_>,
    vision: Fields<'_>,
    dim: usize,
    weights: &Weights,
) -> Result<Neck> {
    let projection = |fields: Fields<'_>| {
        let width = fields.size("projection_dim")?;
        Ok(Neck::Projection {
            width: width.unwrap_or(512),
        })
    };
    match (kind.family, class) {
        (Family::Clip | Family::Aimv2, Class::TwoTowers) => projection(config),
        (Family::Clip, Class::WithProjection) => projection(vision),
        (Family::Vit | Family::Deit, Class::Model) => {
            let pooler = |prefix: &&str| {
                weights
                    .shape(&format!("{prefix}{}.weight", kind.names.pooler))
                    .is_some()
            };
            if !kind.prefixes.iter().any(pooler) {
                return Ok(Neck::None);
            }
            // An output size of 0 or null means the default, like a missing one.
            let width = config
                .accepting_null()
                .count("pooler_output_size")?
                .filter(|&width| width > 0)
                .unwrap_or(dim);
            let activation = activation(config, "pooler_act", Activation::Tanh)?;
            Ok(Neck::Pooler { width, activation })
        }
        _ => Ok(Neck::None),
    }
}

fn activation(fields: Fields<'_>, key: &'static str, default: Activation) -> Result<Activation> {
    match fields.text(key)? {
        None => Ok(default),
        Some("gelu" | "gelu_python") => Ok(Activation::GeluErf),
        Some("gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" | "gelu_accurate" | "gelu_python_tanh") => {
            Ok(Activation::GeluTanh)
        }
        Some("quick_gelu") => Ok(Activation::QuickGelu),
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some("relu") => Ok(Activation::Relu),
        Some("tanh") => Ok(Activation::Tanh),
        Some(other) => Err(fields.error(key, format_args!("is \"{other}\", which is not supported"))),
    }
}
