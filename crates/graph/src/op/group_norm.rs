//! Normalisation of groups of channels over all pixels of an image.

use std::fmt;

use super::norms::{EPSILON, LAYER_NORM_FLOPS};
use super::operands::{count, exactly, expect, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, activation, parameter};
use crate::dtype::DType;
use crate::tolerance::{cancellation, narrow, tolerance};

/// Normalises each of G groups of channels of each image over all its pixels: `(x [B,..,C], weight [C], bias [C]) → (x − mean) /
/// √(variance + epsilon) · weight + bias`. The variance is the biased one. With a group per channel, this is an instance norm.
/// <https://arxiv.org/abs/1803.08494>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Number of groups of consecutive channels.
    pub groups: usize,
    /// Constant added to the variance.
    pub epsilon: f32,
}

impl GroupNorm {
    /// Returns the elements of each group of each image, one group after the other.
    fn grouped<T: Real>(&self, x: &Array<T>) -> Vec<T> {
        let [images, channels] = [x.shape()[0], *x.shape().last().unwrap_or(&1)];
        let image = x.values().len() / images;
        let width = channels / self.groups;
        let mut grouped = Vec::with_capacity(x.values().len());
        for image in x.values().chunks_exact(image) {
            for group in 0..self.groups {
                for pixel in image.chunks_exact(channels) {
                    grouped.extend_from_slice(&pixel[group * width..][..width]);
                }
            }
        }
        grouped
    }
}

impl Definition for GroupNorm {
    const NAME: &'static str = "group_norm";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} groups ε={:e}", self.groups, self.epsilon)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, weight, bias] = exactly(operands)?;
        let channels = match *x {
            [_, .., channels] if self.groups > 0 && channels > 0 && count(x) > 0 => channels,
            _ => return Err(OpError::layout("x", x, "[B, .., C]")),
        };
        if !channels.is_multiple_of(self.groups) {
            return Err(format!("cannot divide {channels} channels into {} groups", self.groups).into());
        }
        expect("weight", weight, &[channels])?;
        expect("bias", bias, &[channels])?;
        one(x)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        LAYER_NORM_FLOPS * count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, weight, bias] = [0, 1, 2].map(|index| operands[index]);
        let channels = weight.values().len();
        let image = x.values().len() / x.shape()[0];
        let length = image / self.groups;
        let of_group = |group: &[T]| {
            let mean = group.iter().copied().sum::<T>() / T::from_f64(length as f64);
            let variance = group.iter().map(|&v| (v - mean).powi(2)).sum::<T>() / T::from_f64(length as f64);
            (mean, (variance + T::from_f32(self.epsilon)).sqrt())
        };
        let statistics: Vec<(T, T)> = self.grouped(x).chunks_exact(length).map(of_group).collect();
        for (index, (y, &x)) in results[0].values_mut().iter_mut().zip(x.values()).enumerate() {
            let channel = index % channels;
            let group = index / image * self.groups + channel / (channels / self.groups);
            let (mean, deviation) = statistics[group];
            *y = (x - mean) / deviation * weight.values()[channel] + bias.values()[channel];
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            let channels = shape[2];
            let divides = |groups: &usize| channels.is_multiple_of(*groups);
            // The common number of groups, one, and one per channel.
            let groups = (2..=32).rev().find(divides).unwrap_or(1);
            for groups in [groups, 1, channels]
                .into_iter()
                .take(if every_form { 3 } else { 1 })
            {
                let x = Operand {
                    mean: 0.5,
                    ..activation(&shape)
                };
                let op = Self {
                    groups,
                    epsilon: EPSILON,
                };
                cases.push(op, vec![x, parameter(&[channels]), parameter(&[channels])]);
            }
        });
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let x = operands[0];
        let length = x.values().len() / x.shape()[0] / self.groups;
        let grouped = Array::new([x.values().len()], self.grouped(x));
        // x is exact, so that only the errors of f32 are amplified.
        let amplification = grouped.map_or(1.0, |grouped| cancellation(&grouped, length, self.epsilon));
        narrow(dtype) + tolerance(DType::F32, length) * amplification
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_normalised_over_all_pixels() {
        // Two pixels of four channels in two groups.
        let x = Array::new([1, 2, 4], vec![1.0, 3.0, 0.0, 0.0, 1.0, 3.0, 4.0, 4.0]).unwrap();
        let ones = Array::new([4], vec![1.0; 4]).unwrap();
        let zeros = Array::new([4], vec![0.0; 4]).unwrap();
        let op = GroupNorm {
            groups: 2,
            epsilon: 0.0,
        };
        let y = op.eval(&[&x, &ones, &zeros]).unwrap();
        assert_eq!(y[0].values(), [-1.0, 1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0]);
        assert!(GroupNorm { groups: 3, ..op }.eval(&[&x, &ones, &zeros]).is_err());
    }
}
