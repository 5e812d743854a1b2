//! Arguments that several classes of timm share.

use super::architectures::{EPSILON, GlobalPool};
use super::config::{Config, truth};
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::norm::{Norm, NormKind};
use crate::model::vit::Vit;

/// Tensor of the patch projection.
pub(super) const PATCH: &str = "patch_embed.proj.weight";

/// Returns an error if `dynamic_img_pad` would pad the images.
pub(super) fn check_padding(config: Config<'_>, vit: &Vit) -> Result<()> {
    let key = "dynamic_img_pad";
    let [height, width] = vit.image;
    let pads = (0..2).any(|axis| !vit.image[axis].is_multiple_of(vit.patch[axis]));
    if pads && truth(config.given, key) == Some(true) {
        let reason =
            format_args!("pads an image of {height}×{width} to whole patches, which is not supported");
        return Err(config.given.error(key, reason));
    }
    Ok(())
}

/// Reads a norm by timm's name. Returns `None` if the name is empty or null.
pub(super) fn norm(given: Fields<'_>, key: &str) -> Result<Option<Norm>> {
    let Some(name) = given.text(key)?.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let kind = match name.replace('_', "").to_lowercase().as_str() {
        "layernorm" | "layernormfp32" => NormKind::Layer,
        "rmsnorm" | "rmsnormfp32" => NormKind::Rms,
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

pub(super) fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

pub(super) fn global_pool(given: Fields<'_>) -> Result<Option<GlobalPool>> {
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
