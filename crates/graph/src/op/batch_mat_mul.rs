//! Products of matrices, for each index of the axes before them.

use std::fmt;

use super::operands::{count, exactly, matmul_flops, one};
use super::{
    Definition, ExpandAs, Gradients, GraphBuilder, Locality, NodeValues, OpError, Reduce, ReduceKind, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, activation};
use crate::dtype::DType;
use crate::matmul::{gemm, rows, rows_mut};
use crate::strided::View;
use crate::tolerance::tolerance;
use crate::value::ValueId;

/// `(a [..,M,K], b [..,K,N]) → a · b [..,M,N]`. The axes before the matrices are broadcast by NumPy's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchMatMul {
    /// True if `a` is `[..,K,M]`.
    pub transpose_a: bool,
    /// True if `b` is `[..,N,K]`.
    pub transpose_b: bool,
}

/// The sizes of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// Extents before the matrices of the result.
    pub outer: Shape,
    /// Rows of a matrix of the result.
    pub m: usize,
    /// Columns of a matrix of the result.
    pub n: usize,
    /// Terms of each element.
    pub k: usize,
}

/// Returns the extents that two shapes are broadcast to. `None` if they do not fit.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| {
        let own = (axis + shape.len()).checked_sub(rank);
        own.map_or(1, |own| shape[own])
    };
    let common = |axis| match (extent(a, axis), extent(b, axis)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    (0..rank).map(common).collect()
}

impl BatchMatMul {
    /// Returns the sizes of the product of operands of these shapes.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the shapes do not fit.
    pub fn product(&self, a: &[usize], b: &[usize]) -> Result<Product, OpError> {
        let invalid = || OpError::from(format!("cannot multiply {a:?} and {b:?}"));
        let (Some((outer_a, &[x, y])), Some((outer_b, &[z, w]))) =
            (a.split_last_chunk::<2>(), b.split_last_chunk::<2>())
        else {
            return Err(invalid());
        };
        let [m, k] = if self.transpose_a { [y, x] } else { [x, y] };
        let [of_b, n] = if self.transpose_b { [w, z] } else { [z, w] };
        let outer = broadcast(outer_a, outer_b).filter(|_| k == of_b && k > 0);
        Ok(Product {
            outer: outer.ok_or_else(invalid)?,
            m,
            n,
            k,
        })
    }

    /// Returns the index of the first element of each matrix of an operand of shape `shape`, for each matrix of the result.
    pub fn matrices(shape: &[usize], outer: &[usize]) -> Vec<usize> {
        let (own, matrix) = shape.split_at(shape.len().saturating_sub(2));
        let size: usize = matrix.iter().product();
        let view = View::of(own).expanded(outer);
        view.indices().map(|index| index * size).collect()
    }
}

impl Definition for BatchMatMul {
    const NAME: &'static str = "batch_mat_mul";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.transpose_a { " aᵀ" } else { "" })?;
        f.write_str(if self.transpose_b { " bᵀ" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [a, b] = exactly(operands)?;
        let Product { mut outer, m, n, .. } = self.product(a, b)?;
        outer.extend([m, n]);
        one(outer)
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let product = self.product(operands[0], operands[1]);
        matmul_flops(&results[0], product.map_or(0, |product| product.k), false)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [a, b] = [0, 1].map(|index| operands[index].shape());
        let Ok(Product { outer, m, n, k }) = self.product(a, b) else {
            return;
        };
        let starts = [a, b].map(|shape| Self::matrices(shape, &outer));
        let y = results[0].values_mut().chunks_exact_mut((m * n).max(1));
        for ((y, &a), &b) in y.zip(&starts[0]).zip(&starts[1]) {
            let (a, b) = (
                &operands[0].values()[a..a + m * k],
                &operands[1].values()[b..b + k * n],
            );
            let a = if self.transpose_a {
                rows(a, m).reversed_axes()
            } else {
                rows(a, k)
            };
            let b = if self.transpose_b {
                rows(b, k).reversed_axes()
            } else {
                rows(b, n)
            };
            gemm(a, b, rows_mut(y, n));
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, every_form } => {
                let outer = [sizes.batch, sizes.heads];
                forms(
                    cases,
                    &outer,
                    &outer,
                    [sizes.tokens, sizes.tokens, sizes.head_dim],
                    every_form,
                );
                forms(
                    cases,
                    &outer,
                    &outer,
                    [sizes.tokens, sizes.head_dim, sizes.tokens],
                    every_form,
                );
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    forms(cases, &[a.batch, 2], &[2], [a.tokens, a.n, a.k], true);
                }
            }
            Scale::Heads => {}
        }
        if cases.is_micro() {
            forms(cases, &[], &[3], [5, 7, 9], true);
            forms(cases, &[2, 1, 3], &[1, 4, 1], [4, 16, 8], true);
            forms(cases, &[1], &[], [64, 128, 32], true);
        }
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let product = self.product(operands[0].shape(), operands[1].shape());
        tolerance(dtype, product.map_or(1, |product| product.k))
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let op = |transpose_a, transpose_b| Self {
            transpose_a,
            transpose_b,
        };
        let d_a = if self.transpose_a {
            builder.push(op(self.transpose_b, true), [b, gradient])?
        } else {
            builder.push(op(false, !self.transpose_b), [gradient, b])?
        };
        let d_b = if self.transpose_b {
            builder.push(op(true, self.transpose_a), [gradient, a])?
        } else {
            builder.push(op(!self.transpose_a, false), [a, gradient])?
        };
        let d_a = sum_like(builder, d_a, a)?;
        Ok(vec![Some(d_a), Some(sum_like(builder, d_b, b)?)])
    }
}

/// Returns the sum of `gradient` over the axes along which `value` was broadcast.
fn sum_like(builder: &mut dyn GraphBuilder, gradient: ValueId, value: ValueId) -> Result<ValueId, OpError> {
    let (of_gradient, own) = (builder.shape_at(gradient, 2)?, builder.shape_at(value, 2)?);
    let missing = of_gradient.len() - own.len();
    let is_repeated = |&axis: &usize| axis < missing || own[axis - missing] != of_gradient[axis];
    let axes: Vec<usize> = (0..of_gradient.len()).filter(is_repeated).collect();
    if axes.is_empty() {
        return Ok(gradient);
    }
    let reduce = Reduce {
        kind: ReduceKind::Sum,
        axes,
        keep: false,
    };
    let sum = builder.push(reduce, [gradient])?;
    builder.push(ExpandAs, [sum, value])
}

/// Adds products of matrices `[m, n, k]` with these extents before them. With `every_form`, adds each transposition.
fn forms(
    cases: &mut Cases<BatchMatMul>,
    of_a: &[usize],
    of_b: &[usize],
    [m, n, k]: [usize; 3],
    every_form: bool,
) {
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        if transpose_a && !every_form {
            continue;
        }
        let a = if transpose_a { [k, m] } else { [m, k] };
        let b = if transpose_b { [n, k] } else { [k, n] };
        let op = BatchMatMul {
            transpose_a,
            transpose_b,
        };
        let operands = vec![activation(&[of_a, &a].concat()), activation(&[of_b, &b].concat())];
        if count(&operands[0].shape) > 0 {
            cases.push(op, operands);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_axes_are_broadcast() {
        let op = BatchMatMul::default();
        assert_eq!(op.shapes(&[&[5, 1, 2, 3], &[4, 3, 6]]).unwrap(), [[5, 4, 2, 6]]);
        assert_eq!(op.shapes(&[&[2, 3], &[4, 3, 6]]).unwrap(), [[4, 2, 6]]);
        for invalid in [[&[2, 2, 3][..], &[4, 3, 6]], [&[2, 3], &[2, 3]], [&[3], &[3, 2]]] {
            assert!(op.shapes(&invalid).is_err(), "{invalid:?}");
        }
        let a = Array::new([2, 1, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        let b = Array::new([2, 2], vec![1.0, 10.0, 100.0, 1000.0]).unwrap();
        let y = op.eval(&[&a, &b]).unwrap();
        assert_eq!(y[0].values(), [201.0, 2010.0, 403.0, 4030.0]);
        let transposed = BatchMatMul {
            transpose_b: true,
            ..op
        };
        let y = transposed.eval(&[&a, &b]).unwrap();
        assert_eq!(y[0].values(), [21.0, 2100.0, 43.0, 4300.0]);
    }
}
