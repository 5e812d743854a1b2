//! Derivative of attention to sampled points.

use std::fmt;

use super::deformable_attention::{Query, QueryGradients, most};
use super::operands::{count, exactly, expect};
use super::{Definition, DeformableAttention, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(value, boxes, offsets, scores, dy [B,Q,D]) → (dvalue, dboxes, doffsets, dscores)` of a [`DeformableAttention`]. The places of discrete
/// points have no derivative: gradients of boxes and offsets are 0.
#[derive(Clone, Debug, PartialEq)]
pub struct DeformableAttentionBackward(pub DeformableAttention);

impl Definition for DeformableAttentionBackward {
    const NAME: &'static str = "deformable_attention_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_attributes(f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [value, boxes, offsets, scores, dy] = exactly(operands)?;
        let forward = self.0.shapes(&[value, boxes, offsets, scores])?;
        expect("dy", dy, &forward[0])?;
        Ok([value, boxes, offsets, scores].map(<[usize]>::to_vec).to_vec())
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        let forward = self.0.flops(operands, &[operands[4].to_vec()]);
        // Samples, and two products with the gradient.
        2 * forward + 12 * count(operands[3])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [batch, tokens, channels] = operands[0].extents();
        let [_, queries, _] = operands[1].extents();
        let points = self.0.points_of_query();
        let [value, of_box, offsets, scores] = results else {
            return;
        };
        for index in 0..batch * queries {
            let pixels = index / queries * tokens * channels..(index / queries + 1) * tokens * channels;
            let query = Query {
                value: &operands[0].values()[pixels.clone()],
                of_box: &operands[1].values()[4 * index..][..4],
                offsets: &operands[2].values()[2 * points * index..][..2 * points],
                scores: &operands[3].values()[points * index..][..points],
            };
            let gradients = QueryGradients {
                value: &mut value.values_mut()[pixels],
                of_box: &mut of_box.values_mut()[4 * index..][..4],
                offsets: &mut offsets.values_mut()[2 * points * index..][..2 * points],
                scores: &mut scores.values_mut()[points * index..][..points],
            };
            let dy = &operands[4].values()[channels * index..][..channels];
            self.0.differentiate(query, dy, gradients);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        DeformableAttention::for_each_case(cases.scale(), |op, mut operands| {
            let (value, boxes) = (&operands[0].shape, &operands[1].shape);
            let dy = activation(&[value[0], boxes[1], value[2]]);
            operands.push(dy);
            cases.push(Self(op), operands);
        });
    }

    /// Executors compute places and weights in f32. See [`DeformableAttention`] for the errors of a place and of a weight. The gradients of
    /// scores, offsets and boxes sum products of values and dy, whose errors are relative to the largest product.
    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let Self(op) = self;
        let results = self.eval(operands);
        let result = results.ok().map_or(1.0, |results| most(&results[index]));
        let [_, queries, channels] = operands[4].extents();
        let width = channels / op.heads;
        let largest_box = most(operands[1]);
        let scale = f64::from(op.scale.abs());
        let extents = op.levels.iter().flatten();
        let extent = extents.fold(1, |most, &extent| most.max(extent)) as f64;
        let product = most(operands[0]) * most(operands[4]) * (width as f64).sqrt();
        let points = op.points_of_query();
        let (len, size) = match index {
            0 => (4 * queries * op.points, most(operands[4])),
            1 => (
                4 * points * width,
                product * extent * (1.0 + scale * most(operands[2])),
            ),
            2 => (4 * width, product * extent * scale * largest_box),
            _ => (4 * width, product),
        };
        let weight = f64::from(f32::EPSILON) / 2.0 * (4.0 + 2.0 * most(operands[3]));
        let errors = tolerance(DType::F32, len) + weight + 4.0 * op.place_error(operands[1], operands[2]);
        narrow(dtype) + errors * (size / result.max(f64::MIN_POSITIVE)).max(1.0)
    }
}
