//! Families and classes of transformers' models.

use serde_json::Value;

use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::info::Family;
use crate::model::names::{self, Names};
use crate::nearest::near;
use crate::ops::Activation;

/// Classes that can be built, which determine what follows the trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
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
pub(super) struct Kind {
    pub(super) model_type: &'static str,
    pub(super) family: Family,
    pub(super) names: &'static Names,
    pub(super) prefixes: &'static [&'static str],
    /// Class names in `architectures`, with their classes.
    pub(super) classes: &'static [(&'static str, Class)],
    pub(super) epsilon: f64,
    pub(super) patch: usize,
    pub(super) activation: Activation,
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

const SWIN: Kind = Kind {
    model_type: "swin",
    family: Family::Swin,
    names: &names::SWIN,
    prefixes: &["swin.", ""],
    classes: &[
        ("SwinModel", Class::Model),
        ("SwinForImageClassification", Class::Classifier),
    ],
    epsilon: 1e-5,
    patch: 4,
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

pub(super) const DINOV2: Kind = Kind {
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
    SWIN,
    Kind {
        model_type: "swinv2",
        prefixes: &["swinv2.", ""],
        classes: &[
            ("Swinv2Model", Class::Model),
            ("Swinv2ForImageClassification", Class::Classifier),
        ],
        ..SWIN
    },
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

/// Encoder of DPT without a `backbone_config`.
pub(super) const DPT: Kind = Kind {
    model_type: "dpt",
    prefixes: &["dpt."],
    classes: &[],
    ..VIT
};

/// Encoder of Donut, whose decoder makes text: Swin without a norm after the last block.
pub(super) const DONUT: Kind = Kind {
    model_type: "donut-swin",
    prefixes: &[],
    classes: &[],
    ..SWIN
};

/// Encoder of SmolVLM and Idefics3, whose decoder makes text: SigLIP without its pooling.
pub(super) const SMOLVLM: Kind = Kind {
    model_type: "smolvlm",
    prefixes: &["model.vision_model."],
    classes: &[],
    patch: 32,
    ..SIGLIP
};

/// Encoder of BLIP, whose decoder makes text.
pub(super) const BLIP: Kind = Kind {
    model_type: "blip",
    names: &names::BLIP,
    prefixes: &["vision_model."],
    classes: &[],
    epsilon: 1e-5,
    ..VIT
};

pub(super) fn kind(config: Fields<'_>) -> Result<&'static Kind> {
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

pub(super) fn class<'a>(config: Fields<'a>, kind: &Kind) -> Result<(&'a str, Class)> {
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
