//! Reads transformers' `config.json`. `model_type` names the family, and `architectures` the class, which determines
//! the head.
//!
//! Missing keys have the library's defaults. A key that is `null` is an error if it is one in transformers 5.23.

mod aimv2;
mod beit;
mod classes;
mod depth;
mod dinov3;
mod encoder;
mod keys;
mod kind;
mod swin;
mod text;
mod trunk;

use serde_json::Value;

use super::description::Description;
use super::fields::Fields;
use super::info::{Family, Library};
use super::vit::{Neck, Positions, Vit};
use super::weights::Weights;
use crate::error::Result;
use crate::labels::Labels;
use crate::ops::Activation;
use classes::Classes;
use depth::estimator;
use encoder::encoder;
pub(super) use keys::{activation, check_architecture};
use keys::{check_layers, tower_config};
use kind::{Class, Kind, class, kind};
use trunk::{MASK_TOKEN, check_channels, trunk};

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

/// Reads the configuration. `image` is the size of the input images.
///
/// `weights` shows whether the checkpoint has a pooler, because no key of the configuration does.
///
/// # Errors
///
/// Returns [`Error::Config`](crate::Error::Config) for a file and key that are not supported.
pub(super) fn describe(config: Fields<'_>, image: [usize; 2], weights: &Weights) -> Result<Description> {
    if let Some(encoder) = encoder(config)? {
        return encoder.describe(image);
    }
    if let Some(estimator) = estimator(config)? {
        return estimator.describe(image);
    }
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
        (Family::Swin, _) => ignored.extend([
            ("*relative_position_index", "a buffer that the windows determine"),
            ("*relative_coords_table", "a buffer that the windows determine"),
        ]),
        (Family::Clip, Class::Model) => ignored.push(("visual_projection.weight", PROJECTION)),
        _ => {}
    }
    check_channels(vision)?;
    let (mut vit, names) = match kind.family {
        Family::Aimv2 => (aimv2::trunk(kind, vision, image)?, kind.names),
        Family::Dinov3 => (dinov3::trunk(kind, config, image)?, dinov3::names(weights)),
        Family::Swin => (swin::trunk(kind, config, image)?, kind.names),
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
        depth: None,
        text,
        names,
        prefixes: kind.prefixes,
        ignored,
        labels: classes.labels(count),
        multi_label: config.get("problem_type").and_then(Value::as_str) == Some("multi_label_classification"),
    })
}

/// Reads the labels of `classes` classes, of any family.
pub(super) fn labels(config: Fields<'_>, classes: usize) -> Result<Labels> {
    Ok(Classes::new(config)?.labels(classes))
}

/// Reads the number of classes of a model of any family.
pub(super) fn classes(config: Fields<'_>) -> Result<usize> {
    let classes = Classes::new(config)?;
    classes.check_any()?;
    Ok(classes.count())
}

/// Checks that the configuration's family and class are supported.
pub(super) fn check_class(config: Fields<'_>) -> Result<()> {
    if encoder(config)?.is_some() || estimator(config)?.is_some() {
        return Ok(());
    }
    class(config, kind(config)?).map(drop)
}

/// Checks that the configuration is of a model that estimates depth.
pub(super) fn check_estimates_depth(config: Fields<'_>) -> Result<()> {
    match estimator(config)? {
        Some(_) => Ok(()),
        None => {
            let model_type = config.text("model_type")?.unwrap_or_default();
            let reason = format_args!(
                "is \"{model_type}\", which estimates no depth; depth_anything and dpt do, and ONNX files with one output of depths"
            );
            Err(config.error("model_type", reason))
        }
    }
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
