//! Tensors of transformers' `SamModel` that segmentation by points and boxes does not need.

use super::config::Config;
use crate::error::Result;
use crate::model::weights::Weights;

/// Requests the tensors, which a new model has too.
pub(super) fn record(config: &Config, weights: &mut Weights) -> Result<()> {
    let dim = config.decoder.dim;
    let mut take = |name: &str, shape: &[usize]| weights.take(name, shape).map(drop);
    let mask = config.mask_channels;
    for (name, shape) in [
        ("conv1", vec![mask / 4, 1, 2, 2]),
        ("conv2", vec![mask, mask / 4, 2, 2]),
        ("conv3", vec![dim, mask, 1, 1]),
        ("layer_norm1", vec![mask / 4]),
        ("layer_norm2", vec![mask]),
    ] {
        take(&format!("prompt_encoder.mask_embed.{name}.weight"), &shape)?;
        take(&format!("prompt_encoder.mask_embed.{name}.bias"), &shape[..1])?;
    }
    for (name, shape) in [
        ("proj_in", [dim, dim]),
        ("layers.0", [dim, dim]),
        ("proj_out", [dim / 8, dim]),
    ] {
        let name = format!("mask_decoder.output_hypernetworks_mlps.0.{name}");
        take(&format!("{name}.weight"), &shape)?;
        take(&format!("{name}.bias"), &shape[..1])?;
    }
    Ok(())
}
