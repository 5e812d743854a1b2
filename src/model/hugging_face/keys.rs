//! Keys of a configuration that several families share.

use serde_json::Value;

use super::kind::Kind;
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::info::Family;
use crate::ops::Activation;

/// Returns the part of a two-tower configuration under `key`, `vision_config` or `text_config`.
///
/// Old CLIP files also have a `vision_config_dict`, which replaces `vision_config`. Other families ignore it.
pub(super) fn tower_config<'a>(kind: &Kind, config: Fields<'a>, key: &'static str) -> Result<Fields<'a>> {
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
pub(super) fn check_layers(config: Fields<'_>) -> Result<()> {
    let key = "per_layer_config";
    match config.get(key) {
        None => Ok(()),
        Some(Value::Object(layers)) if layers.is_empty() => Ok(()),
        Some(_) => Err(config.error(key, "is not supported: all layers must be alike")),
    }
}

/// Checks that the first of `architectures` is `class`.
pub(in crate::model) fn check_architecture(config: Fields<'_>, class: &str) -> Result<()> {
    let first = config.get("architectures").and_then(|list| list.get(0));
    match first.and_then(Value::as_str) {
        Some(found) if found == class => Ok(()),
        Some(other) => Err(config.error(
            "architectures",
            format_args!("is \"{other}\"; \"{class}\" is supported"),
        )),
        None => Err(config.error("architectures", format_args!("is missing; expected \"{class}\""))),
    }
}

pub(in crate::model) fn activation(
    fields: Fields<'_>,
    key: &'static str,
    default: Activation,
) -> Result<Activation> {
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
