//! Losses of maps, composed of ops: each is one number per image.

use hipvit::attention::{Float, floats};
use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Role, ValueId};
use hipvit::ops::{Elementwise, Reduce, ReduceKind, Reshape};
use hipvit::tensor::DType;

use crate::inputs;

/// Target of a pixel whose depth is unknown, which the loss leaves out.
pub(crate) const UNKNOWN: f32 = -1.0;

/// Weight of the squared mean in the scale-invariant loss, as in the training of Depth Anything V2.
const VARIANCE_FOCUS: f32 = 0.5;

/// Smallest depth whose logarithm is computed.
const SMALLEST_DEPTH: f32 = 1e-6;

/// Smallest value under the root of the scale-invariant loss. The slope of a root is infinite at 0.
const SMALLEST_SQUARE: f32 = 1e-12;

/// Smallest variance that the scale-and-shift-invariant loss divides by.
const SMALLEST_VARIANCE: f32 = 1e-6;

/// A loss of the depths of an image. Pixels whose depth is unknown are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DepthLoss {
    /// `√(mean(d²) − ½·mean(d)²)` with `d = ln prediction − ln target`, for metric models and depths in metres: the scale-invariant loss of
    /// <https://arxiv.org/abs/1406.2283> as Depth Anything V2 uses it (<https://arxiv.org/abs/2406.09414>).
    ScaleInvariant,
    /// `½·min mean((s·prediction + t − target)²)` over all s and t, for relative models and inverse depths from 0 to 1: the
    /// scale-and-shift-invariant loss of MiDaS (<https://arxiv.org/abs/1907.01341>, equation 4).
    ScaleAndShiftInvariant,
}

/// Appends nodes of a loss to a graph, with names that begin with `loss.`.
pub(crate) struct LossBuilder<'a> {
    pub(crate) graph: &'a mut Graph,
}

impl LossBuilder<'_> {
    /// Adds a function of the elements of `operands`.
    pub(crate) fn map<const N: usize>(
        &mut self,
        name: &str,
        operands: [ValueId; N],
        function: impl FnOnce([Float; N]) -> Float,
    ) -> Result<ValueId> {
        let name = format!("loss.{name}");
        let arguments = std::array::from_fn(|index| floats::operand(index as u32));
        let op = Elementwise::new(N, function(arguments)).map_err(|error| Error::graph(&name, error))?;
        Ok(self.graph.push(Role::Other, name, op, operands)?)
    }

    /// Adds the sum or the mean along the last axis, which keeps an extent of 1.
    pub(crate) fn reduced(&mut self, name: &str, x: ValueId, kind: ReduceKind) -> Result<ValueId> {
        let op = Reduce {
            kind,
            axes: vec![self.graph.value(x).shape.len() - 1],
            keep: true,
        };
        Ok(self.graph.push(Role::Other, format!("loss.{name}"), op, [x])?)
    }

    /// Adds the mean along the last axis.
    pub(crate) fn mean(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        self.reduced(name, x, ReduceKind::Mean)
    }

    /// Reshapes values of an image to `extents`.
    pub(crate) fn reshaped(&mut self, name: &str, x: ValueId, extents: Vec<usize>) -> Result<ValueId> {
        let op = Reshape {
            extents,
            batch: Some(0),
        };
        Ok(self.graph.push(Role::Other, name, op, [x])?)
    }

    /// Adds the input of a number for each pixel, `[1, pixels]`.
    fn targets(&mut self, pixels: usize) -> Result<ValueId> {
        Ok(self.graph.add_input(inputs::TARGETS, [1, pixels], DType::F32)?)
    }
}

impl DepthLoss {
    /// Appends the loss of a map of depths, `[1, H, W]`.
    pub(crate) fn push(self, graph: &mut Graph, depths: ValueId) -> Result<ValueId> {
        let pixels = graph.value(depths).shape[1..].iter().product();
        let mut loss = LossBuilder { graph };
        let prediction = loss.reshaped("loss.depths", depths, vec![1, pixels])?;
        let target = loss.targets(pixels)?;
        let known = loss.map("known", [target], |[t]| Float::select(&t.less(0.0), 0.0, 1.0))?;
        // Means over all pixels, so that no sum exceeds the range of 16 bits.
        let share = loss.mean("share", known)?;
        let share = loss.map("known_share", [share], |[share]| share.max(SMALLEST_VARIANCE))?;
        let value = match self {
            Self::ScaleInvariant => {
                let difference = loss.map("difference", [prediction, target], |[p, t]| {
                    let logarithm = |x: Float| x.max(SMALLEST_DEPTH).log();
                    Float::select(&t.less(0.0), 0.0, logarithm(p) - logarithm(t))
                })?;
                let square = loss.map("square", [difference], |[d]| d.clone() * d)?;
                let means = [
                    loss.mean("mean", difference)?,
                    loss.mean("mean_square", square)?,
                    share,
                ];
                loss.map("value", means, |[mean, square, share]| {
                    let mean = mean / share.clone();
                    let variance = square / share - mean.clone() * mean * VARIANCE_FOCUS;
                    variance.max(SMALLEST_SQUARE).sqrt()
                })?
            }
            Self::ScaleAndShiftInvariant => {
                let [p, t] = [("prediction", prediction), ("target", target)];
                let [p, t] = [loss.centred(p, [known, share])?, loss.centred(t, [known, share])?];
                let of_product = |loss: &mut LossBuilder<'_>, name: &str, pair| {
                    let product = loss.map(name, pair, |[x, y]| x * y)?;
                    let mean = loss.mean(&format!("{name}_mean"), product)?;
                    loss.map(&format!("{name}_known"), [mean, share], |[mean, share]| {
                        mean / share
                    })
                };
                let moments = [
                    of_product(&mut loss, "variance", [p, p])?,
                    of_product(&mut loss, "target_variance", [t, t])?,
                    of_product(&mut loss, "covariance", [p, t])?,
                ];
                // What the best line of the predictions leaves of the targets' variance.
                loss.map("value", moments, |[variance, of_target, covariance]| {
                    let explained = covariance.clone() * covariance / variance.max(SMALLEST_VARIANCE);
                    (of_target - explained) * 0.5
                })?
            }
        };
        loss.reshaped("loss", value, vec![1])
    }
}

impl LossBuilder<'_> {
    /// Adds the differences from the mean of the known pixels, and 0 for the others.
    fn centred(&mut self, (name, x): (&str, ValueId), [known, share]: [ValueId; 2]) -> Result<ValueId> {
        let kept = self.map(&format!("{name}_known"), [x, known], |[x, known]| x * known)?;
        let mean = self.mean(&format!("{name}_mean"), kept)?;
        self.map(
            &format!("{name}_centred"),
            [x, known, mean, share],
            |[x, known, mean, share]| (x - mean / share) * known,
        )
    }
}

/// Factor of the focal loss of masks, whose other part is the dice loss: SAM's.
const FOCAL_WEIGHT: f32 = 20.0;

/// Share of the focal loss of pixels of the object.
const FOCAL_ALPHA: f32 = 0.25;

/// Appends SAM's loss (<https://arxiv.org/abs/2304.02643>, appendix A) of logits `[1, masks, pixels]` and predicted intersections over unions
/// `[1, masks]`.
///
/// It is the least of the losses of the masks, 20 times the focal loss plus the dice loss, plus the mean squared error of the predictions. The
/// gradient of the former flows to this mask only.
pub(crate) fn push_masks(graph: &mut Graph, masks: ValueId, scores: ValueId) -> Result<ValueId> {
    let &[_, count, pixels] = graph.value(masks).shape.as_slice() else {
        return Err(Error::internal("training", "the masks have no pixels"));
    };
    let mut loss = LossBuilder { graph };
    let target = loss.targets(pixels)?;
    let target = loss.reshaped("loss.target", target, vec![1, 1, pixels])?;
    let focal = loss.map("focal", [masks, target], |[x, t]| {
        let entropy = x.softplus() - x.clone() * t.clone();
        let p = x.sigmoid();
        let wrong = p.clone() + t.clone() - p * t.clone() * 2.0;
        let alpha = t * (2.0 * FOCAL_ALPHA - 1.0) + (1.0 - FOCAL_ALPHA);
        alpha * wrong.clone() * wrong * entropy
    })?;
    let focal = loss.mean("focal_mean", focal)?;
    let probability = loss.map("probability", [masks], |[x]| x.sigmoid())?;
    let both = loss.map("both", [probability, target], |[p, t]| p * t)?;
    let of_dice = [
        loss.mean("both_mean", both)?,
        loss.mean("probability_mean", probability)?,
        loss.mean("target_mean", target)?,
        focal,
    ];
    // One pixel more, in the units of means.
    let one = 1.0 / pixels as f32;
    let of_masks = loss.map("masks", of_dice, |[both, p, t, focal]| {
        let dice = Float::from(1.0) - (both * 2.0 + one) / (p + t + one);
        focal * FOCAL_WEIGHT + dice
    })?;
    let of_masks = loss.reshaped("loss.of_masks", of_masks, vec![1, count])?;
    let least = loss.reduced("least", of_masks, ReduceKind::Min)?;
    let is_least = loss.map("is_least", [of_masks, least], |[x, least]| {
        Float::select(&x.less_equal(least), 1.0, 0.0)
    })?;
    let chosen = loss.map("chosen", [of_masks, is_least], |[x, is_least]| x * is_least)?;
    let chosen = [
        loss.mean("chosen_mean", chosen)?,
        loss.mean("least_mean", is_least)?,
    ];
    let hits = loss.map("hits", [masks, target], |[x, t]| {
        Float::select(&x.greater(0.0), t, 0.0)
    })?;
    let union = loss.map("union", [masks, target], |[x, t]| {
        Float::select(&x.greater(0.0), 1.0, t)
    })?;
    let overlap = [loss.mean("hits_mean", hits)?, loss.mean("union_mean", union)?];
    let overlap = loss.map("overlap", overlap, |[hits, union]| hits / union.max(one))?;
    let overlap = loss.reshaped("loss.overlaps", overlap, vec![1, count])?;
    let error = loss.map("error", [scores, overlap], |[x, y]| {
        let error = x - y;
        error.clone() * error
    })?;
    let error = loss.mean("error_mean", error)?;
    let [chosen, share] = chosen;
    let value = loss.map("value", [chosen, share, error], |[chosen, share, error]| {
        chosen / share + error
    })?;
    loss.reshaped("loss", value, vec![1])
}
