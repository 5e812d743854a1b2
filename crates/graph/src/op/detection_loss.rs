//! Loss of detected objects, as RT-DETR is trained.

mod assignment;
mod boxes;

use std::fmt;

use self::assignment::assign;
use self::boxes::Overlap;
use super::operands::{count, exactly, expect};
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Reshape, ScaleImages, Shape,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, Scale, activation, single};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(logits [B,L·Q,C], boxes [B,L·Q,4], targets [B,T,5] f32) → (losses [B,L] f32, dlogits, dboxes, overlaps [B,L·Q] f32)`: the losses of Q
/// queries of each of L layers, their derivatives, and the intersection over union of each query with its target, or −1 if it has none.
///
/// A target is `class, x, y, width, height` relative to the image. Rows whose class is negative, or not below C, are no targets. For each
/// layer, a one-to-one matching assigns targets to queries with the smallest sum of costs. The loss is a sum over the queries: the varifocal
/// loss of all logits, and of queries with a target the L1 distance of the boxes and 1 − their generalised intersection over union. It is that
/// of transformers' `RTDetrLoss`, times the number of targets of a batch.
///
/// Matching and overlaps count as constants in the derivatives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectionLoss {
    /// Number of layers, each of which is matched and compared.
    pub layers: usize,
    /// Costs of a match.
    pub costs: MatchCosts,
    /// Factors of the losses.
    pub weights: LossWeights,
    /// Factor of the varifocal loss of logits without a target.
    pub alpha: f32,
    /// Power of the probability in the varifocal loss of these logits.
    pub gamma: f32,
}

/// Factors of the costs of matching a query with a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatchCosts {
    /// Factor of the focal loss of the target's class, minus that of no class.
    pub class: f32,
    /// Factor of the L1 distance of the boxes.
    pub distance: f32,
    /// Factor of the negated generalised intersection over union.
    pub overlap: f32,
    /// Weight of the class in the focal loss.
    pub alpha: f32,
    /// Power in the focal loss.
    pub gamma: f32,
}

/// Factors of the parts of the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossWeights {
    /// Factor of the varifocal loss.
    pub classes: f32,
    /// Factor of the L1 distance.
    pub distance: f32,
    /// Factor of 1 − generalised intersection over union.
    pub overlap: f32,
}

/// Cost in place of one that is not finite, or larger.
const LARGEST_COST: f64 = 1e6;
/// Number that is added to a probability before its logarithm.
const LEAST: f64 = 1e-8;

/// Results of the queries of a layer.
#[derive(Debug)]
pub struct LayerResults<'a, T> {
    /// Gradient of the logits.
    pub dlogits: &'a mut [T],
    /// Gradient of the boxes.
    pub dboxes: &'a mut [T],
    /// Overlap of each query with its target.
    pub overlaps: &'a mut [T],
}

fn four<T: Real>(values: &[T]) -> [f64; 4] {
    [0, 1, 2, 3].map(|index| values[index].to_f64())
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl DetectionLoss {
    /// Returns the loss of the queries of a layer, and writes their derivatives and overlaps.
    pub fn layer<T: Real>(
        &self,
        logits: &[T],
        boxes: &[T],
        targets: &[T],
        results: LayerResults<'_, T>,
    ) -> f64 {
        let queries = boxes.len() / 4;
        let classes = logits.len() / queries;
        let class_of = |row: &[T]| {
            let class = row[0].to_f64();
            (class >= 0.0 && class < classes as f64).then_some((class as usize, four(&row[1..])))
        };
        let targets: Vec<(usize, [f64; 4])> = targets.chunks_exact(5).filter_map(class_of).collect();
        let query = |query: usize| four(&boxes[4 * query..]);
        let cost = |&(class, target): &(usize, [f64; 4]), column: usize| {
            let cost = self.cost(logits[column * classes + class].to_f64(), query(column), target);
            if cost < LARGEST_COST { cost } else { LARGEST_COST }
        };
        let of_target = |target| (0..queries).map(move |column| cost(target, column));
        let costs: Vec<f64> = targets.iter().flat_map(of_target).collect();
        let assigned = assign(targets.len(), queries, |row, column| {
            costs[row * queries + column]
        });
        results.dboxes.fill(T::ZERO);
        results.overlaps.fill(-T::ONE);
        let LossWeights {
            classes: of_classes,
            distance,
            overlap,
        } = self.weights;
        let [of_classes, distance, overlap] = [of_classes, distance, overlap].map(f64::from);
        let mut class_of_query = vec![classes; queries];
        let mut loss = 0.0;
        for (&(class, target), &column) in targets.iter().zip(&assigned) {
            let of_box = query(column);
            let Overlap { iou, giou, d_giou } = Overlap::new(of_box, target);
            class_of_query[column] = class;
            results.overlaps[column] = T::from_f64(iou);
            loss += overlap * (1.0 - giou);
            for (index, (x, target)) in of_box.into_iter().zip(target).enumerate() {
                loss += distance * (x - target).abs();
                let sign = if x == target { 0.0 } else { (x - target).signum() };
                results.dboxes[4 * column + index] = T::from_f64(distance * sign - overlap * d_giou[index]);
            }
        }
        for (column, (logits, gradients)) in logits
            .chunks_exact(classes)
            .zip(results.dlogits.chunks_exact_mut(classes))
            .enumerate()
        {
            for (class, (z, gradient)) in logits.iter().zip(gradients).enumerate() {
                let (z, is_target) = (z.to_f64(), class_of_query[column] == class);
                let score = if is_target {
                    results.overlaps[column].to_f64()
                } else {
                    0.0
                };
                let p = sigmoid(z);
                let weight = if is_target {
                    score
                } else {
                    f64::from(self.alpha) * p.powf(self.gamma.into())
                };
                loss += of_classes * weight * (z.max(0.0) - z * score + (-z.abs()).exp().ln_1p());
                *gradient = T::from_f64(of_classes * weight * (p - score));
            }
        }
        loss
    }

    /// Returns the cost of matching a query with a target, whose class has this logit.
    fn cost(&self, logit: f64, of_box: [f64; 4], target: [f64; 4]) -> f64 {
        let MatchCosts {
            class,
            distance,
            overlap,
            alpha,
            gamma,
        } = self.costs;
        let [class, distance, overlap, alpha, gamma] =
            [class, distance, overlap, alpha, gamma].map(f64::from);
        let p = sigmoid(logit);
        let own = alpha * (1.0 - p).powf(gamma) * -(p + LEAST).ln();
        let none = (1.0 - alpha) * p.powf(gamma) * -(1.0 - p + LEAST).ln();
        let far: f64 = of_box
            .iter()
            .zip(target)
            .map(|(x, target)| (x - target).abs())
            .sum();
        class * (own - none) + distance * far - overlap * Overlap::new(of_box, target).giou
    }
}

impl Definition for DetectionLoss {
    const NAME: &'static str = "detection_loss";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " of {} layers", self.layers)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [logits, boxes, targets] = exactly(operands)?;
        let [batch, rows, classes] = *logits else {
            return Err(OpError::layout("the logits", logits, "[B, L·Q, C]"));
        };
        let [_, most, _] = *targets else {
            return Err(OpError::layout("the targets", targets, "[B, T, 5]"));
        };
        expect("boxes", boxes, &[batch, rows, 4])?;
        expect("targets", targets, &[batch, most, 5])?;
        if self.layers == 0 || !rows.is_multiple_of(self.layers) || classes == 0 {
            return Err(format!(
                "cannot divide {rows} queries of {classes} classes into {} layers",
                self.layers
            )
            .into());
        }
        let queries = rows / self.layers;
        if most > queries {
            return Err(format!("has {most} targets, more than {queries} queries").into());
        }
        Ok(vec![
            vec![batch, self.layers],
            logits.to_vec(),
            boxes.to_vec(),
            vec![batch, rows],
        ])
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 2 { DType::F32 } else { dtype }
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 1 || index == 2 {
            dtype
        } else {
            DType::F32
        }
    }

    /// Costs and the loss. The number of steps of the matching depends on the elements.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        let costs = count(&operands[1][..2]) * operands[2][1] as u64;
        12 * count(operands[0]) + 40 * costs
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, rows, classes] = operands[0].extents();
        let [_, most, _] = operands[2].extents();
        let queries = rows / self.layers;
        let [losses, dlogits, dboxes, overlaps] = results else {
            return;
        };
        for (index, loss) in losses.values_mut().iter_mut().enumerate() {
            let (first, len) = (index * queries, queries);
            let results = LayerResults {
                dlogits: &mut dlogits.values_mut()[first * classes..][..len * classes],
                dboxes: &mut dboxes.values_mut()[4 * first..][..4 * len],
                overlaps: &mut overlaps.values_mut()[first..][..len],
            };
            *loss = T::from_f64(self.layer(
                &operands[0].values()[first * classes..][..len * classes],
                &operands[1].values()[4 * first..][..4 * len],
                &operands[2].values()[index / self.layers * 5 * most..][..5 * most],
                results,
            ));
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        let scale = cases.scale();
        let mut add = |layers, [batch, queries, classes, targets]: [usize; 4]| {
            let op = Self {
                layers,
                ..Self::default()
            };
            let rows = layers * queries;
            // Positive, so that boxes have an area.
            let positive = |operand: Operand| Operand {
                mean: 0.5,
                spread: 0.4,
                ..operand
            };
            let logits = Operand {
                spread: 4.0,
                ..activation(&[batch, rows, classes])
            };
            let boxes = positive(activation(&[batch, rows, 4]));
            let targets = positive(single(&[batch, targets, 5]));
            cases.push(op, vec![logits, boxes, targets]);
        };
        match scale {
            Scale::Model { sizes, .. } => {
                add(2, [sizes.batch, sizes.tokens.min(300), 80, sizes.tokens.min(10)]);
            }
            Scale::Awkward => {
                // As many targets as queries, one query, and classes that end inside of a block.
                add(1, [1, 1, 1, 1]);
                add(3, [2, 7, 5, 7]);
                add(2, [3, 65, 33, 9]);
            }
            Scale::Heads => {}
        }
    }

    /// The results are sums and products of few elements in f32. Derivatives of the overlap divide by its square.
    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let rounded = if self.result_dtype(index, dtype) == DType::F32 {
            0.0
        } else {
            narrow(dtype)
        };
        let len = if index == 0 {
            count(operands[0].shape()) as usize
        } else {
            256
        };
        rounded + 4.0 * tolerance(DType::F32, len)
    }

    /// The derivatives are results, which the gradient of each loss scales.
    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let (Some(&Some(gradient)), true) =
            (gradients.first(), gradients.iter().skip(1).all(Option::is_none))
        else {
            return Err(OpError::derivative(
                "only the losses of a detection have a derivative",
            ));
        };
        let layers = self.layers;
        let reshaped = |builder: &mut dyn GraphBuilder, value, extents: Vec<usize>| {
            let reshape = Reshape {
                extents,
                batch: Some(0),
            };
            builder.push(reshape, [value])
        };
        let seed = reshaped(builder, gradient, vec![layers, 1])?;
        let mut scaled = Vec::with_capacity(3);
        for (operand, derivative) in node.inputs.iter().zip(&node.outputs[1..3]) {
            let shape = builder.shape(*operand).to_vec();
            let of_layers = vec![layers, shape[1] / layers, shape[2]];
            let rows = reshaped(builder, *derivative, of_layers)?;
            let rows = builder.push(ScaleImages { column: 0 }, [rows, seed])?;
            scaled.push(Some(reshaped(builder, rows, shape)?));
        }
        scaled.push(None);
        Ok(scaled)
    }
}

impl Default for DetectionLoss {
    /// Returns the loss of one layer with the defaults of transformers.
    fn default() -> Self {
        Self {
            layers: 1,
            costs: MatchCosts {
                class: 2.0,
                distance: 5.0,
                overlap: 2.0,
                alpha: 0.25,
                gamma: 2.0,
            },
            weights: LossWeights {
                classes: 1.0,
                distance: 5.0,
                overlap: 2.0,
            },
            alpha: 0.75,
            gamma: 2.0,
        }
    }
}
