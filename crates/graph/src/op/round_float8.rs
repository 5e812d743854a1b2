//! Rounding to FP8 in training.

use std::fmt;

use super::operands::{count, expect};
use super::{
    Activation, ActivationBackward, Definition, Float8, Gradients, GraphBuilder, Locality, NodeValues,
    OpError, Shape, norms, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, parameter, positive};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// Steps whose largest magnitudes a delayed scale depends on.
pub const HISTORY: usize = 16;

/// Elements of the statistics: the rates of underflow and overflow, and the [history](HISTORY).
pub const STATISTICS: usize = 2 + HISTORY;

/// `(x [..,K], statistics f32, dy [..,K]?) → (y [..,K], transposed [K,R], statistics f32, sums [K]?)`: rounds numbers v to FP8, with
/// [one power of two](Float8::power_of_two_scale) as the scale of all elements.
///
/// | result | contents |
/// | --- | --- |
/// | y | the rounded numbers |
/// | transposed | the same numbers, a row for each column of y. R is the number of rows of y, rounded up to a multiple of `align`. Zeros fill the rest |
/// | statistics | the share of the elements of v that are not 0 and become 0, the share that exceeds the largest number, the largest finite magnitude of v, and those of the steps before, the last one first |
/// | sums | the sums of the columns of v, which are not rounded to FP8 |
///
/// An element of v that is NaN or infinite becomes NaN. The numbers are floats, which bf16 and f32 represent exactly, so a GEMM of them is the
/// GEMM of numbers in FP8. If [`stored`](Self::stored), plans in 16 bits store their bytes.
///
/// The derivative is 1 (straight-through estimator).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundFloat8 {
    /// [`Float8::E4M3`] or [`Float8::E5M2`].
    pub format: Float8,
    /// The numbers that are rounded.
    pub source: Float8Source,
    /// True if the scale is that of the largest magnitude in the history. Larger numbers then saturate. A history of zeros is replaced by the
    /// largest magnitude of v, as is the history if this is false.
    pub delayed: bool,
    /// True if the op sums the columns.
    pub sums: bool,
    /// The transposed result has a multiple of this number of columns.
    pub align: usize,
    /// True if plans in 16 bits store bytes, followed by the [scale](Self::scale_offset). Only linear layers read them.
    pub stored: bool,
}

/// The numbers that [`RoundFloat8`] rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float8Source {
    /// `x`.
    Value,
    /// `f(x)`.
    Activation(Activation),
    /// `f'(x) · dy`.
    Slope(Activation),
}

impl RoundFloat8 {
    /// Index of the result `transposed`.
    pub const TRANSPOSED: usize = 1;
    /// Index of the result `statistics`.
    pub const STATISTICS: usize = 2;
    /// Index of the result `sums`.
    pub const SUMS: usize = 3;

    /// Returns the offset in bytes of the scale behind a stored result.
    pub fn scale_offset(elements: usize) -> usize {
        elements.next_multiple_of(16)
    }

    /// Returns the dtype of stored results.
    pub fn stored_dtype(&self) -> DType {
        match self.format {
            Float8::E4M3 | Float8::E4M3Fnuz => DType::F8E4M3,
            Float8::E5M2 | Float8::E5M2Fnuz => DType::F8E5M2,
        }
    }

    /// Returns true if a multiple of 16 channels and the alignment let GEMMs multiply bytes of an operand with this shape.
    pub fn can_store(&self, x: &[usize]) -> bool {
        let channels = x.last().copied().unwrap_or(0);
        let rows = x.iter().product::<usize>() / channels.max(1);
        channels > 0 && channels.is_multiple_of(16) && rows.next_multiple_of(self.align).is_multiple_of(16)
    }

    /// Returns the scale, from the history and the largest finite magnitude of the elements.
    pub fn scale(&self, statistics: &[f32], largest: f32) -> f32 {
        let history = statistics.get(2..).unwrap_or_default();
        let known = history.iter().copied().fold(0.0, f32::max);
        let magnitude = if self.delayed && known > 0.0 {
            known
        } else {
            largest
        };
        self.format.power_of_two_scale(magnitude)
    }

    /// Rounds a number. One that is not finite becomes NaN.
    pub fn round(&self, v: f32, scale: f32) -> f32 {
        if v.is_finite() {
            self.format.round_scaled(v, scale)
        } else {
            f32::NAN
        }
    }

    /// Returns the new statistics.
    pub fn statistics(&self, old: &[f32], largest: f32, [underflow, overflow]: [f32; 2]) -> Vec<f32> {
        let history = old.get(2..).unwrap_or_default().iter().copied();
        [underflow, overflow, largest]
            .into_iter()
            .chain(history)
            .take(STATISTICS)
            .collect()
    }
}

impl Definition for RoundFloat8 {
    const NAME: &'static str = "round_float8";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.format {
            Float8::E4M3 | Float8::E4M3Fnuz => " e4m3",
            Float8::E5M2 | Float8::E5M2Fnuz => " e5m2",
        })?;
        f.write_str(if self.delayed { " delayed" } else { "" })?;
        f.write_str(if self.stored { " stored" } else { "" })?;
        match self.source {
            Float8Source::Value => {}
            Float8Source::Activation(activation) => write!(f, " {}", activation.name())?,
            Float8Source::Slope(activation) => write!(f, " {} slope", activation.name())?,
        }
        f.write_str(if self.sums { " +sums" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let (x, statistics) = match (self.source, operands) {
            (Float8Source::Slope(_), [x, statistics, dy]) => {
                expect("dy", dy, x)?;
                (x, statistics)
            }
            (Float8Source::Slope(_), _) => return Err("takes x, statistics and dy".into()),
            (_, [x, statistics]) => (x, statistics),
            _ => return Err("takes x and statistics".into()),
        };
        if !matches!(self.format, Float8::E4M3 | Float8::E5M2) {
            return Err("rounds to E4M3 or E5M2 in OCP's encoding".into());
        }
        expect("the statistics", statistics, &[STATISTICS])?;
        let Some((&columns, outer)) = x.split_last() else {
            return Err("x is a scalar".into());
        };
        if self.align == 0 {
            return Err("aligns rows to multiples of 0".into());
        }
        let rows = outer.iter().product::<usize>().next_multiple_of(self.align);
        let sums = self.sums.then(|| vec![columns]);
        let results = [x.to_vec(), vec![columns, rows], vec![STATISTICS]];
        Ok(results.into_iter().chain(sums).collect())
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 1 { DType::F32 } else { dtype }
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            0 | Self::TRANSPOSED if self.stored && dtype.size() == 2 => self.stored_dtype(),
            Self::STATISTICS => DType::F32,
            _ => dtype,
        }
    }

    /// The numbers, the largest magnitude, product, rounding, two comparisons, and the sum.
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        let source = match self.source {
            Float8Source::Value => 0,
            Float8Source::Activation(activation) => activation.flops_per_element(),
            Float8Source::Slope(activation) => 2 * activation.flops_per_element() + 1,
        };
        (5 + source + u64::from(self.sums)) * count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let x = operands[0].values();
        let columns = operands[0].shape().last().copied().unwrap_or(1).max(1);
        let v: Vec<T> = match self.source {
            Float8Source::Value => x.to_vec(),
            Float8Source::Activation(activation) => x.iter().map(|&x| activation.apply(x)).collect(),
            Float8Source::Slope(activation) => {
                let backward = ActivationBackward {
                    activation,
                    secant: false,
                    sums: false,
                };
                let pairs = x.iter().zip(operands[2].values());
                pairs.map(|(&x, &dy)| backward.slope(x) * dy).collect()
            }
        };
        let finite = v.iter().map(|v| v.to_f32()).filter(|v| v.is_finite());
        let largest = finite.fold(0.0, |most, v| v.abs().max(most));
        let old: Vec<f32> = operands[1].values().iter().map(|v| v.to_f32()).collect();
        let scale = self.scale(&old, largest);
        let mut counts = [0_usize; 2];
        let rows = results[1].shape()[1];
        for (index, v) in v.iter().map(|v| v.to_f32()).enumerate() {
            let rounded = self.round(v, scale);
            counts[0] += usize::from(v != 0.0 && rounded == 0.0);
            counts[1] += usize::from(v.is_finite() && v.abs() / scale > self.format.largest());
            let rounded = T::from_f32(rounded);
            results[0].values_mut()[index] = rounded;
            results[1].values_mut()[index % columns * rows + index / columns] = rounded;
        }
        let rates = counts.map(|count| (count as f64 / v.len().max(1) as f64) as f32);
        let statistics = self.statistics(&old, largest, rates);
        let statistics: Vec<T> = statistics.into_iter().map(T::from_f32).collect();
        results[2].values_mut().copy_from_slice(&statistics);
        if let Some(sums) = results.get_mut(Self::SUMS) {
            for row in v.chunks(columns) {
                norms::add(sums.values_mut(), |column| row[column]);
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            let statistics = || positive(&[STATISTICS]);
            for format in [Float8::E4M3, Float8::E5M2] {
                let op = Self {
                    format,
                    source: Float8Source::Value,
                    delayed: format == Float8::E4M3,
                    sums: true,
                    align: 16,
                    stored: false,
                };
                let operands = || vec![activation(&shape), statistics()];
                for result in [0, Self::TRANSPOSED, Self::STATISTICS, Self::SUMS] {
                    cases.push_result(result, op, operands());
                }
                if every_form {
                    let weight = Self {
                        delayed: !op.delayed,
                        sums: false,
                        align: 1,
                        ..op
                    };
                    cases.push(weight, vec![parameter(&shape[1..]), statistics()]);
                    let of_gelu = Self {
                        source: Float8Source::Activation(Activation::GeluErf),
                        ..op
                    };
                    cases.push(of_gelu, operands());
                    let slope = Self {
                        source: Float8Source::Slope(Activation::GeluErf),
                        ..op
                    };
                    let operands = vec![activation(&shape), statistics(), activation(&shape)];
                    cases.push_result(Self::TRANSPOSED, slope, operands.clone());
                    cases.push_result(Self::SUMS, slope, operands);
                }
            }
        });
    }

    /// Rounded numbers of x are exact, unless f16 has no number so small. A number that a function computes may be rounded to the next one.
    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let columns = operands[0].shape().last().copied().unwrap_or(1).max(1);
        let rows = operands[0].values().len() / columns;
        match index {
            0 | Self::TRANSPOSED if self.source != Float8Source::Value => match self.format {
                Float8::E4M3 | Float8::E4M3Fnuz => 2f64.powi(-3),
                Float8::E5M2 | Float8::E5M2Fnuz => 2f64.powi(-2),
            },
            0 | Self::TRANSPOSED if dtype == DType::F16 => f64::from(f32::EPSILON),
            0 | Self::TRANSPOSED => 0.0,
            Self::STATISTICS => tolerance(DType::F32, 1),
            // The numbers are those of separate ops, rounded to the dtype.
            _ if self.source != Float8Source::Value => 2.0 * narrow(dtype) + tolerance(DType::F32, rows + 4),
            _ => narrow(dtype) + tolerance(DType::F32, rows),
        }
    }

    fn vjp(
        &self,
        _builder: &mut dyn GraphBuilder,
        _node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        if self.source != Float8Source::Value || self.sums {
            return Err(OpError::derivative(
                "has no derivative after passes have fused other ops into it",
            ));
        }
        Ok(vec![Some(only_gradient(gradients)?), None])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OP: RoundFloat8 = RoundFloat8 {
        format: Float8::E4M3,
        source: Float8Source::Value,
        delayed: false,
        sums: false,
        align: 1,
        stored: false,
    };

    fn run(op: RoundFloat8, x: &[f64], history: &[f64]) -> [Vec<f64>; 2] {
        let x = Array::new([1, x.len()], x.to_vec()).unwrap();
        let mut statistics = vec![0.0; STATISTICS];
        statistics[2..2 + history.len()].copy_from_slice(history);
        let statistics = Array::new([STATISTICS], statistics).unwrap();
        let results = op.eval(&[&x, &statistics]).unwrap();
        [0, RoundFloat8::STATISTICS].map(|index| results[index].values().to_vec())
    }

    #[test]
    fn elements_are_rounded_with_the_scale_of_the_largest() {
        // The scale of 448 is 1. Numbers from 1 to 2 have a spacing of 1/8, the smallest ones of 2^-9.
        let [y, statistics] = run(OP, &[448.0, -1.06, 1.07, 0.0, 0.0009, -0.003], &[]);
        assert_eq!(y, [448.0, -1.0, 1.125, 0.0, 0.0, -1.0 / 256.0]);
        assert_eq!(statistics[..3], [f64::from(1.0 / 6.0_f32), 0.0, 448.0]);
        // With 449, the scale is 2. The history does not count.
        let [y, _] = run(OP, &[449.0, 30.9], &[1.0]);
        assert_eq!(y, [448.0, 30.0]);
        // Numbers from 1 to 2 have a spacing of 1/4 in E5M2.
        let op = RoundFloat8 {
            format: Float8::E5M2,
            ..OP
        };
        let x = [57344.0, -1.13, 2f64.powi(-17), 2f64.powi(-17) * 1.01];
        let [y, statistics] = run(op, &x, &[]);
        assert_eq!(y, [57344.0, -1.25, 0.0, 2f64.powi(-16)]);
        assert_eq!(statistics[0], 0.25);
    }

    #[test]
    fn a_delayed_scale_is_that_of_the_history() {
        let op = RoundFloat8 { delayed: true, ..OP };
        // Without a history, the scale is that of the elements.
        let [y, statistics] = run(op, &[896.0, 1.0], &[]);
        assert_eq!((y, statistics[2]), (vec![896.0, 1.0], 896.0));
        // With a largest magnitude of 448 in the history, the scale is 1, and 896 saturates.
        let [y, statistics] = run(op, &[896.0, 1.0625, -448.0, 0.0], &[3.0, 448.0]);
        assert_eq!(y, [448.0, 1.0, -448.0, 0.0]);
        assert_eq!(statistics[..6], [0.0, 0.25, 896.0, 3.0, 448.0, 0.0]);
        // The oldest magnitude is forgotten.
        let [_, statistics] = run(op, &[1.0], &[2.0; HISTORY]);
        assert_eq!(statistics.len(), STATISTICS);
        assert_eq!(statistics[2..], [vec![1.0], vec![2.0; HISTORY - 1]].concat());
    }

    #[test]
    fn elements_that_are_not_finite_become_nan_alone() {
        for value in [f64::INFINITY, f64::NAN] {
            let [y, statistics] = run(OP, &[1.0, value, 0.0, 2.0], &[]);
            assert!(y[1].is_nan());
            assert_eq!([y[0], y[2], y[3]], [1.0, 0.0, 2.0]);
            assert_eq!(statistics[..3], [0.0, 0.0, 2.0]);
        }
    }

    #[test]
    fn the_transpose_is_padded_with_zeros() {
        let op = RoundFloat8 {
            sums: true,
            align: 4,
            ..OP
        };
        let x = Array::new([3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.125]).unwrap();
        let statistics = Array::new([STATISTICS], vec![0.0; STATISTICS]).unwrap();
        let results = op.eval(&[&x, &statistics]).unwrap();
        assert_eq!(results[1].shape(), [2, 4]);
        assert_eq!(results[1].values(), [1.0, 3.0, 5.0, 0.0, 2.0, 4.0, 6.0, 0.0]);
        assert_eq!(results[3].values(), [9.0, 12.125]);
        let aligned = RoundFloat8 { align: 16, ..op };
        assert!(aligned.can_store(&[5, 32]) && !aligned.can_store(&[5, 33]));
        assert!(!op.can_store(&[5, 32]));
    }
}
