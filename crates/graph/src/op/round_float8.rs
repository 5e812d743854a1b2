//! Rounding to FP8 in training.

use std::fmt;

use super::operands::{count, exactly};
use super::{
    Definition, Float8, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, parameter, positive};
use crate::dtype::DType;
use crate::tolerance::tolerance;
use crate::value::ValueId;

/// `(x, switches [L] f32) → (y, rate [1] f32)`: rounds x to FP8, with [one power of two](Float8::power_of_two_scale) as the scale of all
/// elements. y has the rounded numbers as floats. bf16 and f32 represent them exactly, so a GEMM of them is the GEMM of the numbers in FP8.
///
/// The rate is the share of the elements that are not 0 and become 0. No number overflows. An element that is NaN or infinite makes all of y
/// NaN. If `switches[column]` is 0, y is x and the rate is 0.
///
/// The derivative is 1 (straight-through estimator).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundFloat8 {
    /// [`Float8::E4M3`] or [`Float8::E5M2`].
    pub format: Float8,
    /// Index of the switch.
    pub column: usize,
}

impl Definition for RoundFloat8 {
    const NAME: &'static str = "round_float8";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.format {
            Float8::E4M3 | Float8::E4M3Fnuz => " e4m3",
            Float8::E5M2 | Float8::E5M2Fnuz => " e5m2",
        })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, switches] = exactly(operands)?;
        if !matches!(self.format, Float8::E4M3 | Float8::E5M2) {
            return Err("rounds to E4M3 or E5M2 in OCP's encoding".into());
        }
        if x.is_empty() {
            return Err("x is a scalar".into());
        }
        match switches {
            [switches] if self.column < *switches => Ok(vec![x.to_vec(), vec![1]]),
            _ => {
                let expected = format!("[L] with L > {}", self.column);
                Err(OpError::layout("the switches", switches, expected))
            }
        }
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::F32 }
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::F32 }
    }

    /// Largest magnitude, quotient, rounding, product and count.
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        7 * count(&results[0])
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], _results: &[Shape]) -> usize {
        // x is read twice.
        match index {
            0 => 2 * operands[0].iter().product::<usize>(),
            _ => 1,
        }
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let x = operands[0].values();
        let (y, rate) = results.split_at_mut(1);
        if operands[1].values()[self.column] == T::ZERO {
            y[0].values_mut().copy_from_slice(x);
            return;
        }
        let magnitude = |x: f32| if x.is_nan() { f32::INFINITY } else { x.abs() };
        let largest = x.iter().map(|x| magnitude(x.to_f32())).fold(0.0, f32::max);
        let scale = self.format.power_of_two_scale(largest);
        let mut underflows = 0;
        for (y, x) in y[0].values_mut().iter_mut().zip(x) {
            let x = x.to_f32();
            let rounded = self.format.round_scaled(x, scale);
            underflows += usize::from(x != 0.0 && rounded == 0.0);
            *y = T::from_f32(rounded);
        }
        rate[0].values_mut()[0] = T::from_f64(underflows as f64 / x.len().max(1) as f64);
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            let switches = || positive(&[3]);
            for format in [Float8::E4M3, Float8::E5M2] {
                let op = Self { format, column: 2 };
                let operands = || vec![activation(&shape), switches()];
                cases.push(op, operands());
                if every_form {
                    cases.push_in_arena(op, operands());
                    cases.push(op, vec![parameter(&shape[1..]), switches()]);
                    cases.push_result(1, op, operands());
                }
            }
        });
    }

    /// y is exact, unless f16 has no number so small. The rate is a quotient.
    fn tolerance(&self, index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        match (index, dtype) {
            (0, DType::F16) => f64::from(f32::EPSILON),
            (0, _) => 0.0,
            _ => tolerance(DType::F32, 1),
        }
    }

    fn vjp(
        &self,
        _builder: &mut dyn GraphBuilder,
        _node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        Ok(vec![Some(only_gradient(gradients)?), None])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(format: Float8, x: &[f64], switch: f64) -> [Vec<f64>; 2] {
        let x = Array::new([1, x.len()], x.to_vec()).unwrap();
        let switches = Array::new([2], vec![0.0, switch]).unwrap();
        let op = RoundFloat8 { format, column: 1 };
        let results = op.eval(&[&x, &switches]).unwrap();
        [0, 1].map(|index| results[index].values().to_vec())
    }

    #[test]
    fn elements_are_rounded_with_the_scale_of_the_largest() {
        // The scale of 448 is 1. Numbers from 1 to 2 have a spacing of 1/8, the smallest ones of 2^-9.
        let [y, rate] = run(Float8::E4M3, &[448.0, -1.06, 1.07, 0.0, 0.0009, -0.003], 1.0);
        assert_eq!(y, [448.0, -1.0, 1.125, 0.0, 0.0, -1.0 / 256.0]);
        assert_eq!(rate, [1.0 / 6.0]);
        // With 449, the scale is 2.
        let [y, _] = run(Float8::E4M3, &[449.0, 30.9], 1.0);
        assert_eq!(y, [448.0, 30.0]);
        // Numbers from 1 to 2 have a spacing of 1/4 in E5M2.
        let [y, rate] = run(
            Float8::E5M2,
            &[57344.0, -1.13, 2f64.powi(-17), 2f64.powi(-17) * 1.01],
            1.0,
        );
        assert_eq!(y, [57344.0, -1.25, 0.0, 2f64.powi(-16)]);
        assert_eq!(rate, [0.25]);
    }

    #[test]
    fn one_infinite_element_makes_all_nan() {
        for value in [f64::INFINITY, f64::NAN] {
            let [y, rate] = run(Float8::E4M3, &[1.0, value, 0.0, 2.0], 1.0);
            assert!(y.iter().all(|y| y.is_nan()));
            assert_eq!(rate, [0.0]);
        }
    }

    #[test]
    fn a_layer_that_is_switched_off_is_not_rounded() {
        let x = [448.0, 1.06, 1e-9];
        assert_eq!(run(Float8::E4M3, &x, 0.0), [x.to_vec(), vec![0.0]]);
    }
}
