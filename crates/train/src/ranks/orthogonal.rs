//! Orthonormal columns.

use hipvit::custom::{CpuKernel, CpuOperand, CustomOp, OpBuilder};
use hipvit::ops::operands::exactly;
use hipvit::ops::{Op, OpError, Shape};
use hipvit::reference::Array;

/// Share of a column's length below which it depends on the columns before it.
const DEPENDENT: f64 = 1e-6;

/// `(x [M,R]) → (columns [M,R])`: orthonormal columns that span the columns of x, by the modified Gram-Schmidt process in f64. A column that
/// depends on those before it is replaced by a direction that does not. R is at most M.
#[derive(Debug)]
pub(super) struct Orthonormalize;

impl Orthonormalize {
    pub(super) fn op() -> Op {
        OpBuilder::new(Self).cpu().build()
    }
}

impl CustomOp for Orthonormalize {
    fn name(&self) -> &'static str {
        "orthonormalize"
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        match *x {
            [rows, columns] if columns <= rows && columns > 0 => Ok(vec![x.to_vec()]),
            _ => Err(format!("takes a matrix with no more columns than rows, got {x:?}").into()),
        }
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        let columns = operands[0].last().copied().unwrap_or(0);
        (2 * columns * operands[0].iter().product::<usize>()) as u64
    }

    fn reference(&self, operands: &[&Array], results: &mut [Array]) {
        let columns = operands[0].shape().last().copied().unwrap_or(1);
        let out = orthonormal(operands[0].values(), columns);
        results[0].values_mut().copy_from_slice(&out);
    }
}

impl CpuKernel for Orthonormalize {
    fn run(&self, operands: &[CpuOperand<'_>], results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let columns = operands[0].shape().last().copied().unwrap_or(1);
        let x: Vec<f64> = operands[0].values().iter().map(|&value| value.into()).collect();
        for (out, value) in results[0].iter_mut().zip(orthonormal(&x, columns)) {
            *out = value as f32;
        }
        Ok(())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Subtracts from a column its share of orthonormal ones.
fn project(column: &mut [f64], others: &[Vec<f64>]) {
    for other in others {
        let share = dot(column, other);
        column
            .iter_mut()
            .zip(other)
            .for_each(|(value, other)| *value -= share * other);
    }
}

/// Returns orthonormal columns that span those of `x`. Both are row-major.
fn orthonormal(x: &[f64], columns: usize) -> Vec<f64> {
    let rows = x.len() / columns;
    let mut found: Vec<Vec<f64>> = Vec::with_capacity(columns);
    for column in 0..columns {
        let mut values: Vec<f64> = x.iter().skip(column).step_by(columns).copied().collect();
        let before = dot(&values, &values).sqrt();
        project(&mut values, &found);
        let mut length = dot(&values, &values).sqrt();
        let mut next = 0;
        // Not `<=`, so that NaN stays.
        while (length == 0.0 || length < DEPENDENT * before) && next < rows {
            // At least one of the axes has a share of 1 / rows outside the columns so far.
            values.fill(0.0);
            values[next] = 1.0;
            project(&mut values, &found);
            length = dot(&values, &values).sqrt();
            if length * length * 2.0 < 1.0 / rows as f64 {
                length = 0.0;
            }
            next += 1;
        }
        values.iter_mut().for_each(|value| *value /= length);
        found.push(values);
    }
    let element = |row: usize| found.iter().map(move |column| column[row]);
    (0..rows).flat_map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(len: usize) -> Vec<f64> {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 23) - 1.0
        };
        (0..len).map(|_| next()).collect()
    }

    fn column(x: &[f64], columns: usize, index: usize) -> Vec<f64> {
        x.iter().skip(index).step_by(columns).copied().collect()
    }

    #[track_caller]
    fn assert_orthonormal(x: &[f64], columns: usize) {
        for a in 0..columns {
            for b in 0..columns {
                let product = dot(&column(x, columns, a), &column(x, columns, b));
                let expected = if a == b { 1.0 } else { 0.0 };
                assert!((product - expected).abs() < 1e-9, "{a} · {b} = {product}");
            }
        }
    }

    #[test]
    fn columns_are_orthonormal_and_span_the_same_space() {
        for (rows, columns) in [(1, 1), (5, 5), (33, 3), (197, 8)] {
            let x = random(rows * columns);
            let out = orthonormal(&x, columns);
            assert_orthonormal(&out, columns);
            for index in 0..columns {
                // What is left of a column outside the span.
                let mut rest = column(&x, columns, index);
                let basis: Vec<Vec<f64>> = (0..columns).map(|index| column(&out, columns, index)).collect();
                project(&mut rest, &basis);
                assert!(dot(&rest, &rest) < 1e-18 * rows as f64, "{rows}x{columns}");
            }
        }
    }

    #[test]
    fn dependent_columns_are_replaced() {
        for x in [
            vec![0.0; 12],
            vec![1.0; 12],
            random(12).into_iter().map(f64::round).collect(),
        ] {
            assert_orthonormal(&orthonormal(&x, 3), 3);
        }
        let nan = orthonormal(&[f64::NAN, 1.0, 2.0, 3.0], 2);
        assert!(nan.iter().any(|value| value.is_nan()));
    }
}
