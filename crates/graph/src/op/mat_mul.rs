//! Matrix products for the backward passes of linear layers.

use std::fmt;

use super::operands::{count, exactly, matmul_flops, one};
use super::{
    Definition, Gradients, GraphBuilder, Linear, Locality, NodeValues, OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, activation, parameter, with};
use crate::dtype::DType;
use crate::matmul::{gemm, rows, rows_mut};
use crate::tolerance::tolerance;
use crate::value::ValueId;

/// `(a [..,K], b [K,N]) → a · b [..,N]`. Transposed: `(a [..,K], b [..,N]) → aᵀ · b [K,N]`, summed over all rows of both.
/// [`Linear`] computes the product with `bᵀ`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatMul {
    /// True if `a` is transposed.
    pub transpose_a: bool,
}

impl Definition for MatMul {
    const NAME: &'static str = "mat_mul";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.transpose_a { " transposed" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [a, b] = exactly(operands)?;
        let (Some((&k, outer)), Some((&n, rows))) = (a.split_last(), b.split_last()) else {
            return Err(format!("takes matrices, got {operands:?}").into());
        };
        if self.transpose_a {
            if count(outer) != count(rows) {
                return Err(format!("multiplies the rows of {a:?} and {b:?}, which are not as many").into());
            }
            return one([k, n]);
        }
        if *rows != [k] {
            return Err(OpError::layout("`b`", b, format!("[{k}, N]")));
        }
        one(outer.iter().copied().chain([n]).collect::<Shape>())
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let columns = operands[0].last().copied().unwrap_or(1).max(1);
        let k = if self.transpose_a {
            operands[0].iter().product::<usize>() / columns
        } else {
            columns
        };
        matmul_flops(&results[0], k, false)
    }

    fn locality(&self, _index: usize) -> Locality {
        if self.transpose_a {
            Locality::Whole
        } else {
            Locality::Rows { parameters: 1..2 }
        }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [a, b] = [0, 1].map(|index| {
            let columns = operands[index].shape().last().copied().unwrap_or(1);
            rows(operands[index].values(), columns)
        });
        let n = b.ncols();
        let a = if self.transpose_a { a.reversed_axes() } else { a };
        gemm(a, b, rows_mut(results[0].values_mut(), n));
    }

    fn cases(cases: &mut Cases<Self>) {
        let plain = Self { transpose_a: false };
        let transposed = Self { transpose_a: true };
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                let (rows, channels) = ([sizes.batch, sizes.tokens], sizes.channels());
                let [x, y] = [channels, 4 * channels].map(|channels| activation(&with(&rows, channels)));
                cases.push(plain, vec![y.clone(), parameter(&[4 * channels, channels])]);
                cases.push(transposed, vec![y, x]);
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    let [x, y] = [a.k, a.n].map(|channels| activation(&[a.batch, a.tokens, channels]));
                    cases.push(plain, vec![x.clone(), parameter(&[a.k, a.n])]);
                    cases.push(transposed, vec![x, y]);
                }
            }
            Scale::Heads => {}
        }
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let shape = operands[0].shape();
        let columns = shape.last().copied().unwrap_or(1).max(1);
        let k = if self.transpose_a {
            shape.iter().product::<usize>() / columns
        } else {
            columns
        };
        tolerance(dtype, k)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let by_transposed = Linear::default();
        let [d_a, d_b] = if self.transpose_a {
            let d_a = builder.push(by_transposed, [b, gradient])?;
            [d_a, builder.push(Self { transpose_a: false }, [a, gradient])?]
        } else {
            let d_a = builder.push(by_transposed, [gradient, b])?;
            [d_a, builder.push(Self { transpose_a: true }, [a, gradient])?]
        };
        Ok(vec![Some(d_a), Some(d_b)])
    }
}
