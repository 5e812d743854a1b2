//! Reads timm's `config.json`: an architecture's name, arguments that override it, and the preprocessing.
//!
//! Values are resolved in timm's order: arguments of the architecture, overridden by `model_args`, then
//! `pretrained_cfg` for what neither sets.

mod architectures;
mod arguments;
mod beit;
mod config;
mod eva;
mod hiera;
mod mixer;
mod naflex;
pub(super) mod pretrained;
mod swin;
mod vision_transformer;

use super::description::Description;
use super::fields::Fields;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::labels::Labels;
use crate::nearest::near;
use config::Config;
pub(super) use config::is_wrapped;

/// Reads the configuration. `image_size` is the requested size, timm's `img_size`. `weights` give the size of the
/// stored patches.
///
/// # Errors
///
/// Returns [`Error::Config`] for a file and key that are not supported.
pub(super) fn describe(
    config: Fields<'_>,
    image_size: Option<[usize; 2]>,
    weights: &Weights,
) -> Result<Description> {
    let config = Config::new(config)?;
    let name = config.architecture()?;
    config.check_label_offset()?;
    if let Some(arguments) = eva::lookup(name) {
        return eva::describe(config, name, arguments, image_size, weights);
    }
    if let Some(arguments) = beit::lookup(name) {
        return beit::describe(config, name, arguments, image_size, weights);
    }
    if let Some(arguments) = mixer::lookup(name) {
        return mixer::describe(config, name, arguments, image_size);
    }
    if let Some(arguments) = naflex::lookup(name) {
        return naflex::describe(config, name, arguments, image_size);
    }
    if let Some(arguments) = swin::lookup(name) {
        return swin::describe(config, name, arguments, image_size);
    }
    if let Some(arguments) = hiera::lookup(name) {
        return hiera::describe(config, name, arguments, image_size);
    }
    let arguments = architectures::lookup(name).ok_or_else(|| unknown(config.top, name))?;
    vision_transformer::describe(config, name, arguments, image_size, weights)
}

/// Reads the labels of `classes` classes, of any architecture.
pub(super) fn labels(config: Fields<'_>, classes: usize) -> Result<Labels> {
    Config::new(config)?.labels(classes)
}

/// Checks that the configuration's architecture is supported.
pub(super) fn check_architecture(config: Fields<'_>) -> Result<()> {
    let name = Config::new(config)?.architecture()?;
    let known = architectures::lookup(name).is_some()
        || eva::lookup(name).is_some()
        || beit::lookup(name).is_some()
        || mixer::lookup(name).is_some()
        || naflex::lookup(name).is_some()
        || swin::lookup(name).is_some()
        || hiera::lookup(name).is_some();
    if known { Ok(()) } else { Err(unknown(config, name)) }
}

/// Beginnings of names of architectures near the supported ones, and why they are not supported.
const REFUSED: [(&str, &str); 1] = [(
    "swinv2_cr_",
    "its blocks and position networks are not those of Swin V2, despite the name",
)];

fn unknown(config: Fields<'_>, name: &str) -> Error {
    if let Some((_, reason)) = REFUSED.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        let reason = format_args!("is \"{name}\", which is not supported: {reason}");
        return config.error("architecture", reason);
    }
    let near = near(
        name,
        architectures::names()
            .chain(eva::all())
            .chain(beit::all())
            .chain(mixer::all())
            .chain(naflex::all())
            .chain(swin::all())
            .chain(hiera::all()),
    );
    config.error(
        "architecture",
        format_args!(
            "is \"{name}\", which is not supported{near}; supported are the architectures of timm's modules vision_transformer, deit, eva, beit, mlp_mixer, naflexvit, swin_transformer, swin_transformer_v2 and hiera"
        ),
    )
}

#[cfg(test)]
mod tests;
