//! Attention to a few sampled points of several maps, <https://arxiv.org/abs/2010.04159>.

use std::fmt;

use super::operands::{count, exactly, expect, one};
use super::{
    Definition, DeformableAttentionBackward, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, Scale, activation, image_size};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(value [B,N,D], boxes [B,Q,4], offsets [B,Q,2·P], scores [B,Q,P]) → [B,Q,D]`: for each head of a query, a mean of points of `value`,
/// weighted by the softmax of their scores.
///
/// `value` has the pixels of all levels after each other, with the channels of all heads. A query has `P = heads · levels · points` points,
/// in this order. A point is at `center + offset · size · scale` of the query's box. Boxes are `x, y, width, height`, and offsets `x, y`,
/// relative to the image.
#[derive(Clone, Debug, PartialEq)]
pub struct DeformableAttention {
    /// Number of heads.
    pub heads: usize,
    /// Rows and columns of each level, at most [`MAX_LEVELS`](Self::MAX_LEVELS).
    pub levels: Vec<[usize; 2]>,
    /// Number of points of a level.
    pub points: usize,
    /// Factor of the offsets.
    pub scale: f32,
    /// How a point is sampled.
    pub sampling: PointSampling,
}

/// How a point of a map is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointSampling {
    /// Linear interpolation of 2×2 pixels, with zeros outside.
    Linear,
    /// The pixel whose index is nearest to the position times the extent. RT-DETRv2 calls it discrete.
    Discrete,
}

/// Points beyond this are as far outside as this one, so that pixels can be counted by integers.
const FARTHEST: f64 = 1e9;

/// Operands of a query.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a, T> {
    /// Values of the query's image, `[N, D]`.
    pub value: &'a [T],
    /// The query's box.
    pub of_box: &'a [T],
    /// Offsets of all points.
    pub offsets: &'a [T],
    /// Scores of all points.
    pub scores: &'a [T],
}

/// Gradients of the operands of a query.
#[derive(Debug)]
pub struct QueryGradients<'a, T> {
    /// Sums of the values of the query's image, `[N, D]`.
    pub value: &'a mut [T],
    /// Gradient of the query's box.
    pub of_box: &'a mut [T],
    /// Gradients of all offsets.
    pub offsets: &'a mut [T],
    /// Gradients of all scores.
    pub scores: &'a mut [T],
}

/// A pixel that a point reads.
struct Tap {
    /// Index among the pixels of all levels.
    pixel: usize,
    /// Weights down and across, whose product is that of the pixel.
    weights: [f64; 2],
    /// Derivatives of the weight by the place of the point, across and down, relative to the image.
    slopes: [f64; 2],
}

impl DeformableAttention {
    /// Maximum number of levels, which the kernel of GPUs takes as arguments.
    pub const MAX_LEVELS: usize = 8;

    /// Returns the number of points of a query.
    pub fn points_of_query(&self) -> usize {
        self.heads * self.points_of_head()
    }

    fn points_of_head(&self) -> usize {
        self.levels.len() * self.points
    }

    /// Returns the two pixels of an axis that a point reads, with their weights. `None` is a zero outside.
    fn taps(&self, position: f64, extent: usize) -> [(Option<usize>, f64); 2] {
        let inside = |index: f64| (index >= 0.0 && index < extent as f64).then_some(index as usize);
        // NaN samples pixel 0.
        let limited = |at: f64| {
            if at.is_nan() {
                0.0
            } else {
                at.clamp(-FARTHEST, FARTHEST)
            }
        };
        let at = position * extent as f64;
        match self.sampling {
            PointSampling::Linear => {
                let at = limited(at - 0.5);
                let first = at.floor();
                let rest = at - first;
                [(inside(first), 1.0 - rest), (inside(first + 1.0), rest)]
            }
            PointSampling::Discrete => {
                let pixel = limited(at + 0.5).trunc().clamp(0.0, extent as f64 - 1.0);
                [(Some(pixel as usize), 1.0), (None, 0.0)]
            }
        }
    }

    /// Calls `visit` for each pixel that the points of a head read, with the number of the point.
    fn for_each_tap<T: Real>(&self, query: Query<'_, T>, head: usize, mut visit: impl FnMut(usize, Tap)) {
        let [x, y, width, height] = [0, 1, 2, 3].map(|index| query.of_box[index].to_f64());
        let scale = f64::from(self.scale);
        let points = self.points_of_head();
        let mut offsets = query.offsets[head * 2 * points..].chunks_exact(2);
        let slopes = match self.sampling {
            PointSampling::Linear => [-1.0, 1.0],
            PointSampling::Discrete => [0.0; 2],
        };
        let mut first = 0;
        for (level, &[rows, columns]) in self.levels.iter().enumerate() {
            for (point, offset) in offsets.by_ref().take(self.points).enumerate() {
                let across = self.taps(x + offset[0].to_f64() * width * scale, columns);
                let down = self.taps(y + offset[1].to_f64() * height * scale, rows);
                for ((row, of_row), row_slope) in down.into_iter().zip(slopes) {
                    for ((column, of_column), column_slope) in across.into_iter().zip(slopes) {
                        let (Some(row), Some(column)) = (row, column) else {
                            continue;
                        };
                        let tap = Tap {
                            pixel: first + row * columns + column,
                            weights: [of_row, of_column],
                            slopes: [
                                of_row * column_slope * columns as f64,
                                of_column * row_slope * rows as f64,
                            ],
                        };
                        visit(level * self.points + point, tap);
                    }
                }
            }
            first += rows * columns;
        }
    }

    /// Computes the result of a query. `zeros` are its elements.
    pub fn attend<T: Real>(&self, query: Query<'_, T>, zeros: &mut [T]) {
        let (all, channels) = (zeros.len(), zeros.len() / self.heads);
        let points = self.points_of_head();
        let heads = zeros.chunks_exact_mut(channels);
        let mut weights = vec![0.0; points];
        for (head, (out, scores)) in heads.zip(query.scores.chunks_exact(points)).enumerate() {
            softmax(scores, &mut weights);
            self.for_each_tap(query, head, |point, tap| {
                let weight = T::from_f64(weights[point] * tap.weights[0] * tap.weights[1]);
                let value = &query.value[tap.pixel * all + head * channels..][..channels];
                out.iter_mut().zip(value).for_each(|(y, &x)| *y += weight * x);
            });
        }
    }

    /// Computes the gradients of a query's operands from that of its result. It adds to `gradients.value`, and replaces the others.
    pub fn differentiate<T: Real>(
        &self,
        query: Query<'_, T>,
        gradient: &[T],
        gradients: QueryGradients<'_, T>,
    ) {
        let (all, channels) = (gradient.len(), gradient.len() / self.heads);
        let points = self.points_of_head();
        let size = [2, 3].map(|index| query.of_box[index].to_f64() * f64::from(self.scale));
        let (mut of_box, mut weights) = ([0.0; 4], vec![0.0; points]);
        for (head, (dy, scores)) in gradient
            .chunks_exact(channels)
            .zip(query.scores.chunks_exact(points))
            .enumerate()
        {
            softmax(scores, &mut weights);
            // For each point, the product of its sample and the gradient, and the derivatives of the product by the place.
            let mut products = vec![[0.0; 3]; points];
            self.for_each_tap(query, head, |point, tap| {
                let place = tap.pixel * all + head * channels;
                let weight = tap.weights[0] * tap.weights[1];
                let share = T::from_f64(weights[point] * weight);
                let sums = gradients.value[place..][..channels].iter_mut();
                sums.zip(dy).for_each(|(sum, &dy)| *sum += share * dy);
                let value = &query.value[place..][..channels];
                let product = value.iter().zip(dy).map(|(&x, &dy)| x * dy).sum::<T>().to_f64();
                for (sum, factor) in products[point]
                    .iter_mut()
                    .zip([weight, tap.slopes[0], tap.slopes[1]])
                {
                    *sum += product * factor;
                }
            });
            let mean: f64 = products
                .iter()
                .zip(&weights)
                .map(|([x, ..], weight)| x * weight)
                .sum();
            for (point, ([product, slopes @ ..], weight)) in products.iter().zip(&weights).enumerate() {
                let at = head * points + point;
                gradients.scores[at] = T::from_f64(weight * (product - mean));
                for (axis, slope) in slopes.iter().enumerate() {
                    let slope = slope * weight;
                    let offset = query.offsets[2 * at + axis].to_f64();
                    gradients.offsets[2 * at + axis] = T::from_f64(slope * size[axis]);
                    of_box[axis] += slope;
                    of_box[2 + axis] += slope * offset * f64::from(self.scale);
                }
            }
        }
        for (result, sum) in gradients.of_box.iter_mut().zip(of_box) {
            *result = T::from_f64(sum);
        }
    }

    /// Calls `add` for each case of `hipvit validate`.
    pub(super) fn for_each_case(scale: Scale, mut add: impl FnMut(Self, Vec<Operand>)) {
        let mut add = |op: Self, batch: usize, queries: usize, channels: usize| {
            let tokens = op.levels.iter().map(|[rows, columns]| rows * columns).sum();
            let points = op.points_of_query();
            let boxes = Operand {
                mean: 0.5,
                spread: 0.5,
                ..activation(&[batch, queries, 4])
            };
            // Some points are outside of the image.
            let offsets = Operand {
                spread: 4.0,
                ..activation(&[batch, queries, 2 * points])
            };
            let scores = Operand {
                spread: 3.0,
                ..activation(&[batch, queries, points])
            };
            let value = activation(&[batch, tokens, channels]);
            add(op, vec![value, boxes, offsets, scores]);
        };
        let of_levels = |heads, levels: &[[usize; 2]], points, sampling| Self {
            heads,
            levels: levels.to_vec(),
            points,
            scale: 0.5 / points as f32,
            sampling,
        };
        match scale {
            Scale::Model { sizes, .. } => {
                let size = image_size(sizes.tokens, [1, 1], 0);
                let op = of_levels(sizes.heads, &[size], 4, PointSampling::Linear);
                add(op, sizes.batch, sizes.tokens, sizes.channels());
            }
            Scale::Awkward => {
                for sampling in [PointSampling::Linear, PointSampling::Discrete] {
                    // Heads that end inside of a vector, levels of one pixel, one level, and as many as there may be.
                    add(of_levels(3, &[[7, 9], [4, 5], [1, 1]], 3, sampling), 2, 5, 39);
                    add(of_levels(2, &[[5, 3], [2, 6]], 4, sampling), 3, 13, 64);
                    add(of_levels(1, &[[1, 8]], 1, sampling), 1, 1, 1);
                    add(of_levels(4, &[[2, 3]; Self::MAX_LEVELS], 2, sampling), 1, 3, 32);
                }
            }
            Scale::Heads => {}
        }
    }

    /// Returns a bound of the error of a place in pixels, in f32: up to 4 roundings of its distance.
    pub(super) fn place_error(&self, boxes: &Array, offsets: &Array) -> f64 {
        let extents = self.levels.iter().flatten();
        let extent = extents.fold(1, |most, &extent| most.max(extent));
        let farthest = most(boxes) * (1.0 + most(offsets) * f64::from(self.scale.abs()));
        match self.sampling {
            PointSampling::Linear => 2.0 * f64::from(f32::EPSILON) * farthest.max(1.0) * extent as f64,
            PointSampling::Discrete => 0.0,
        }
    }
}

/// Returns the largest magnitude.
pub(super) fn most(array: &Array) -> f64 {
    array.values().iter().fold(0.0f64, |most, x| most.max(x.abs()))
}

/// Writes the softmax of scores.
fn softmax<T: Real>(scores: &[T], weights: &mut [f64]) {
    let scores = scores.iter().map(|score| score.to_f64());
    let most = scores.clone().fold(f64::NEG_INFINITY, f64::max);
    for (weight, score) in weights.iter_mut().zip(scores) {
        *weight = (score - most).exp();
    }
    let total: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= total);
}

impl Definition for DeformableAttention {
    const NAME: &'static str = "deformable_attention";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} heads, {} points of", self.heads, self.points)?;
        for [rows, columns] in &self.levels {
            write!(f, " {rows}×{columns}")?;
        }
        f.write_str(match self.sampling {
            PointSampling::Linear => "",
            PointSampling::Discrete => " discrete",
        })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [value, boxes, offsets, scores] = exactly(operands)?;
        let [batch, tokens, channels] = *value else {
            return Err(OpError::layout("value", value, "[B, N, D]"));
        };
        let [_, queries, _] = *boxes else {
            return Err(OpError::layout("boxes", boxes, "[B, Q, 4]"));
        };
        let pixels: usize = self.levels.iter().map(|[rows, columns]| rows * columns).sum();
        if pixels != tokens || self.levels.iter().flatten().any(|&extent| extent == 0) {
            let levels = &self.levels;
            return Err(format!("cannot read levels of {levels:?} pixels from {tokens} tokens").into());
        }
        if self.levels.len() > Self::MAX_LEVELS {
            let most = Self::MAX_LEVELS;
            return Err(format!("has {} levels, more than {most}", self.levels.len()).into());
        }
        if self.heads == 0 || self.points == 0 || channels == 0 || channels % self.heads != 0 {
            let (heads, points) = (self.heads, self.points);
            return Err(format!("has {heads} heads of {points} points for {channels} channels").into());
        }
        let points = self.points_of_query();
        expect("boxes", boxes, &[batch, queries, 4])?;
        expect("offsets", offsets, &[batch, queries, 2 * points])?;
        expect("scores", scores, &[batch, queries, points])?;
        one([batch, queries, channels])
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let taps = match self.sampling {
            PointSampling::Linear => 4,
            PointSampling::Discrete => 1,
        };
        // The softmax, and the place of each point.
        11 * count(operands[3]) + 2 * taps * self.points_of_head() as u64 * count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [batch, tokens, channels] = operands[0].extents();
        let [_, queries, _] = operands[1].extents();
        if batch * queries == 0 {
            return;
        }
        let points = self.points_of_query();
        let of_queries = operands[1].values().chunks_exact(4).zip(
            operands[2]
                .values()
                .chunks_exact(2 * points)
                .zip(operands[3].values().chunks_exact(points)),
        );
        let results = results[0].values_mut().chunks_exact_mut(channels);
        for (index, (out, (of_box, (offsets, scores)))) in results.zip(of_queries).enumerate() {
            let image = index / queries;
            let query = Query {
                value: &operands[0].values()[image * tokens * channels..][..tokens * channels],
                of_box,
                offsets,
                scores,
            };
            self.attend(query, out);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        Self::for_each_case(cases.scale(), |op, operands| cases.push(op, operands));
    }

    /// Executors compute places and weights in f32.
    ///
    /// - A place has an error of up to 4 roundings of its distance in pixels. The weight of a pixel changes by as much, along both axes, and
    ///   its two neighbours by the opposite.
    /// - A weight of the softmax has a relative error of 4 roundings, and one for each unit of its score.
    ///
    /// The weights of all points add up to 1, so that these are errors of the largest value.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let result = self.eval(operands).ok().map_or(1.0, |results| most(&results[0]));
        let ratio = most(operands[0]) / result.max(f64::MIN_POSITIVE);
        let place = self.place_error(operands[1], operands[2]);
        let weight = f64::from(f32::EPSILON) / 2.0 * (4.0 + 2.0 * most(operands[3]));
        let sum = tolerance(DType::F32, 4 * self.points_of_head());
        narrow(dtype) + (sum + weight + 4.0 * place) * ratio.max(1.0)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let operands = [node.inputs, &[only_gradient(gradients)?]].concat();
        let gradients = builder.push_node(DeformableAttentionBackward(self.clone()), operands)?;
        Ok(gradients.into_iter().map(Some).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `MultiScaleDeformableAttention` of transformers 5.24 and, for discrete points, `multi_scale_deformable_attention_v2`.
    #[test]
    fn results_are_those_of_transformers() {
        let value = Array::new([1, 8, 2], (0..16).map(f64::from).collect::<Vec<_>>()).unwrap();
        let boxes = Array::new([1, 2, 4], vec![0.5, 0.25, 0.5, 1.0, 0.9, 0.6, 0.25, 0.5]).unwrap();
        let offsets = vec![
            0.5, -1.0, 2.0, 3.0, -1.0, 0.25, 0.0, 0.0, 1.0, 1.0, -2.0, -3.0, 0.75, 0.5, 4.0, -4.0, -0.5, 1.0,
            -2.0, 0.5, 1.0, 2.0, -3.0, 3.0, 0.0, 0.0, 1.0, -1.0, 2.0, -2.0, -0.25, 0.75,
        ];
        let offsets = Array::new([1, 2, 16], offsets).unwrap();
        let scores = vec![
            0.0, 1.0, -1.0, 0.5, 2.0, 0.0, 0.0, -2.0, 1.0, 1.0, 0.0, 0.0, -1.0, 0.25, 3.0, 0.0,
        ];
        let scores = Array::new([1, 2, 8], scores).unwrap();
        for (sampling, expected) in [
            (
                PointSampling::Linear,
                [5.913049903015, 6.557296016281, 7.993850519392, 5.842684573843],
            ),
            (
                PointSampling::Discrete,
                [10.36032173858, 10.63686300486, 11.07576568548, 14.709394772945],
            ),
        ] {
            let op = DeformableAttention {
                heads: 2,
                levels: vec![[2, 3], [1, 2]],
                points: 2,
                scale: 0.25,
                sampling,
            };
            let found = op.eval(&[&value, &boxes, &offsets, &scores]).unwrap();
            let found = found[0].values();
            let is_close = found
                .iter()
                .zip(expected)
                .all(|(found, expected)| (found - expected).abs() < 1e-11);
            assert!(is_close, "{sampling:?}: {found:?}");
        }
    }

    #[test]
    fn operands_must_fit_the_levels() {
        let op = DeformableAttention {
            heads: 2,
            levels: vec![[2, 3], [1, 2]],
            points: 2,
            scale: 0.25,
            sampling: PointSampling::Linear,
        };
        let error =
            |op: &DeformableAttention, shapes: [&[usize]; 4]| op.shapes(&shapes).unwrap_err().to_string();
        let fitting: [&[usize]; 4] = [&[1, 8, 4], &[1, 3, 4], &[1, 3, 16], &[1, 3, 8]];
        assert_eq!(op.shapes(&fitting).unwrap(), [[1, 3, 4]]);
        let found = error(&op, [&[1, 9, 4], fitting[1], fitting[2], fitting[3]]);
        assert!(found.contains("from 9 tokens"), "{found}");
        let found = error(&op, [&[1, 8, 5], fitting[1], fitting[2], fitting[3]]);
        assert!(
            found.contains("has 2 heads of 2 points for 5 channels"),
            "{found}"
        );
        let found = error(&op, [fitting[0], fitting[1], fitting[3], fitting[3]]);
        assert!(found.contains("offsets"), "{found}");
        let levels = vec![[1, 1]; 9];
        let found = error(
            &DeformableAttention { levels, ..op },
            [&[1, 9, 4], fitting[1], fitting[2], fitting[3]],
        );
        assert!(found.contains("has 9 levels, more than 8"), "{found}");
    }
}
