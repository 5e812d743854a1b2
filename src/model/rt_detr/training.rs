//! Training of RT-DETR: the graph that is differentiated, and the loss of transformers' `RTDetrForObjectDetection`.

use std::path::Path;

use super::config::{self, Config};
use super::layers::Norms;
use super::outputs::{BOXES, LOGITS};
use crate::error::{Error, Result};
use crate::model::fields::Fields;
use crate::model::source::Source;
use crate::ops::DetectionLoss;
use crate::ops::detection_loss::{LossWeights, MatchCosts};

/// Probabilities of dropout, which training does not apply.
const DROPOUT: [&str; 3] = ["dropout", "attention_dropout", "activation_dropout"];

/// Names of the outputs of a detector's graph: the logits of all classes of each query, and its box.
pub const DETECTOR_OUTPUTS: [&str; 2] = [LOGITS, BOXES];

/// How a detector is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DetectorTraining {
    /// Loss of the selected pixels and of each layer of the decoder.
    pub loss: DetectionLoss,
    /// Number of queries, the maximum number of objects in an image.
    pub queries: usize,
    /// Number of classes.
    pub classes: usize,
}

/// Reads how the detector at `path` is trained: an RT-DETR model of transformers.
///
/// # Errors
///
/// [`Error::Config`] for a model of another type, or for a key that training does not follow.
pub fn detector_training(path: &Path) -> Result<DetectorTraining> {
    let source = Source::open(path)?;
    let document = source.config()?;
    let fields = document.fields()?;
    let mut config = config::read(fields)?;
    prepare(&mut config, fields)?;
    for (key, expected) in [("use_focal_loss", true), ("auxiliary_loss", true)] {
        if fields.flag(key)?.unwrap_or(expected) != expected {
            return Err(fields.error(key, "is false, which is not trained"));
        }
    }
    let number = |key: &str, default: f64| Ok::<_, Error>(fields.number(key)?.unwrap_or(default) as f32);
    Ok(DetectorTraining {
        loss: DetectionLoss {
            layers: config.decoder.depth + 1,
            costs: MatchCosts {
                class: number("matcher_class_cost", 2.0)?,
                distance: number("matcher_bbox_cost", 5.0)?,
                overlap: number("matcher_giou_cost", 2.0)?,
                alpha: number("matcher_alpha", 0.25)?,
                gamma: number("matcher_gamma", 2.0)?,
            },
            weights: LossWeights {
                classes: number("weight_loss_vfl", 1.0)?,
                distance: number("weight_loss_bbox", 5.0)?,
                overlap: number("weight_loss_giou", 2.0)?,
            },
            alpha: number("focal_loss_alpha", 0.75)?,
            gamma: number("focal_loss_gamma", 2.0)?,
        },
        queries: config.decoder.queries,
        classes: config.decoder.classes,
    })
}

/// Makes the configuration that of the graph that training differentiates.
pub(super) fn prepare(config: &mut Config, fields: Fields<'_>) -> Result<()> {
    for key in DROPOUT {
        if fields.number(key)?.is_some_and(|probability| probability != 0.0) {
            return Err(fields.error(key, "is not 0, and is not applied in training. Set it to 0"));
        }
    }
    config.trains = true;
    config.encoder.norms = Norms::Trained;
    config.backbone.norms = if fields.flag("freeze_backbone_batch_norms")?.unwrap_or(true) {
        Norms::Frozen
    } else {
        Norms::Trained
    };
    Ok(())
}
