//! Derivative of biases by relative position.

use std::fmt;

use super::operands::{count, exactly, expect, one};
use super::{Definition, Locality, OpError, RelativeBias, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(gradient of the bias) → gradient of the table [R,H]`: each row is the sum over the pairs of a query and a key with its distance. Kinds
/// of windows, queries and keys are added in a fixed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeBiasBackward(pub RelativeBias);

impl Definition for RelativeBiasBackward {
    const NAME: &'static str = "relative_bias_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_attributes(f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [gradient] = exactly(operands)?;
        let heads = gradient.len().checked_sub(3).map_or(0, |axis| gradient[axis]);
        expect("gradient", gradient, &self.0.bias_shape(heads))?;
        one([self.0.table_rows(), heads])
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, heads] = results[0].extents();
        let tokens = self.0.tokens();
        let sums = results[0].values_mut();
        for (row, gradients) in operands[0].values().chunks_exact(tokens).enumerate() {
            let (head, query) = (row / tokens % heads, row % tokens);
            for (key, &gradient) in gradients.iter().enumerate() {
                sums[self.0.row_of(query, key) * heads + head] += gradient;
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        RelativeBias::for_each_case(cases, |cases, op, [_, heads]| {
            cases.push(Self(op), vec![activation(&op.bias_shape(heads))]);
        });
    }

    /// A distance has at most as many pairs as there are tokens.
    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        let kinds = self.0.shift.map_or(1, |_| RelativeBias::KINDS);
        narrow(dtype) + tolerance(DType::F32, kinds * self.0.tokens())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The derivative is the transposed map: `⟨bias(table), gradient⟩ = ⟨table, backward(gradient)⟩`, where nothing is hidden.
    #[test]
    fn the_derivative_is_the_transposed_map() {
        for op in [
            RelativeBias {
                grid: [2, 3],
                class_token: true,
                shift: None,
            },
            RelativeBias {
                grid: [3, 2],
                class_token: false,
                shift: Some([1, 1]),
            },
        ] {
            const HEADS: usize = 2;
            let rows = op.table_rows();
            let table: Vec<f64> = (0..rows * HEADS).map(|i| (i * 7 % 11) as f64 - 5.0).collect();
            let table = Array::new([rows, HEADS], table).unwrap();
            let shape = op.bias_shape(HEADS);
            let len = shape.iter().product();
            let gradient: Vec<f64> = (0..len).map(|i| ((i * 13) % 17) as f64 - 8.0).collect();
            let gradient = Array::new(shape, gradient).unwrap();
            let zeros = Array::zeros(table.shape().to_vec());
            let [bias, hidden] = [&table, &zeros].map(|table| op.eval(&[table]).unwrap().remove(0));
            let found = RelativeBiasBackward(op).eval(&[&gradient]).unwrap().remove(0);
            let pairs = bias.values().iter().zip(hidden.values()).zip(gradient.values());
            let expected: f64 = pairs
                .map(|((bias, hidden), gradient)| (bias - hidden) * gradient)
                .sum();
            let product: f64 = found
                .values()
                .iter()
                .zip(table.values())
                .map(|(a, b)| a * b)
                .sum();
            assert!(
                expected != 0.0 && (product - expected).abs() < 1e-9,
                "{product}, {expected}"
            );
        }
    }
}
