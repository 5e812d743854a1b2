//! Matrix products for the backward passes of linear layers.

use std::fmt;

use super::operands::{count, exactly, matmul_flops, one};
use super::{
    Definition, Gradients, GraphBuilder, Linear, Locality, NodeValues, OpError, Shape, norms, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, activation, parameter, with};
use crate::dtype::DType;
use crate::matmul::{gemm, rows, rows_mut};
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(a [..,K], b [K,N]) → a · b [..,N]`. Transposed: `(a [..,K], b [..,N]) → (aᵀ · b [K,N], sums?)`, summed over all rows of both. The sums
/// `[K]` are those of the columns of `a`: the gradient of a bias, where the product is that of a weight. [`Linear`] computes the product
/// with `bᵀ`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatMul {
    /// True if `a` is transposed.
    pub transpose_a: bool,
    /// True if the sums of the columns of `a` are a second result. Only if `a` is transposed.
    pub column_sums: bool,
}

impl MatMul {
    /// `aᵀ · b`, without sums.
    pub const TRANSPOSED: Self = Self {
        transpose_a: true,
        column_sums: false,
    };
}

impl Definition for MatMul {
    const NAME: &'static str = "mat_mul";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.transpose_a { " transposed" } else { "" })?;
        f.write_str(if self.column_sums { " +sums" } else { "" })
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
            let sums = self.column_sums.then(|| vec![k]);
            return Ok(std::iter::once(vec![k, n]).chain(sums).collect());
        }
        if self.column_sums {
            return Err("sums columns only if `a` is transposed".into());
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
        let sums = if self.column_sums { count(operands[0]) } else { 0 };
        matmul_flops(&results[0], k, false) + sums
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
        if let [_, sums] = results {
            for row in a.rows() {
                norms::add(sums.values_mut(), |column| row[column]);
            }
        }
        let a = if self.transpose_a { a.reversed_axes() } else { a };
        gemm(a, b, rows_mut(results[0].values_mut(), n));
    }

    fn cases(cases: &mut Cases<Self>) {
        let plain = Self::default();
        let transposed = Self::TRANSPOSED;
        let with_sums = Self {
            column_sums: true,
            ..transposed
        };
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                let (rows, channels) = ([sizes.batch, sizes.tokens], sizes.channels());
                let [x, y] = [channels, 4 * channels].map(|channels| activation(&with(&rows, channels)));
                cases.push(plain, vec![y.clone(), parameter(&[4 * channels, channels])]);
                cases.push(transposed, vec![y.clone(), x.clone()]);
                cases.push(with_sums, vec![y.clone(), x.clone()]);
                cases.push_result(1, with_sums, vec![y, x]);
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    let [x, y] = [a.k, a.n].map(|channels| activation(&[a.batch, a.tokens, channels]));
                    cases.push(plain, vec![x.clone(), parameter(&[a.k, a.n])]);
                    cases.push(with_sums, vec![x.clone(), y.clone()]);
                    cases.push_result(1, with_sums, vec![x, y]);
                }
            }
            Scale::Heads => {}
        }
    }

    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let shape = operands[0].shape();
        let columns = shape.last().copied().unwrap_or(1).max(1);
        let k = if self.transpose_a {
            shape.iter().product::<usize>() / columns
        } else {
            columns
        };
        match index {
            0 => tolerance(dtype, k),
            _ => narrow(dtype) + tolerance(DType::F32, k),
        }
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        if self.column_sums {
            return Err(OpError::derivative(
                "sums of columns beside a product have no derivative",
            ));
        }
        let gradient = only_gradient(gradients)?;
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let by_transposed = Linear::default();
        let [d_a, d_b] = if self.transpose_a {
            let d_a = builder.push(by_transposed, [b, gradient])?;
            [d_a, builder.push(Self::default(), [a, gradient])?]
        } else {
            let d_a = builder.push(by_transposed, [gradient, b])?;
            [d_a, builder.push(Self::TRANSPOSED, [a, gradient])?]
        };
        Ok(vec![Some(d_a), Some(d_b)])
    }
}
