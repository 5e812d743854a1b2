//! Products of matrices, by strided batches of the library's GEMM.

use hipvit_graph::op::BatchMatMul;
use hipvit_graph::strided::View;

use super::KernelError;
use super::lower::{Call, Lower, Lowering};
use crate::dtype::to_hip;
use crate::hip::{Gemm, Matrix};

/// Maximum number of GEMMs of a step, each of which is a batch.
const MOST_GEMMS: usize = 1024;

/// Matrices with the same distance between neighbours, which one GEMM multiplies.
struct Batch {
    /// Number of matrices.
    count: usize,
    /// Number of axes before the matrices that are part of the batch, from the last one on.
    axes: usize,
    /// Distance between the matrices of each operand, in matrices.
    strides: [usize; 2],
}

impl Batch {
    /// Returns the largest batch of the last axes of both views, which have the same extents.
    fn of(views: &[View; 2]) -> Self {
        let extents = &views[0].extents;
        let mut batch = Self {
            count: 1,
            axes: 0,
            strides: [0, 0],
        };
        for axis in (0..extents.len()).rev() {
            let strides = [0, 1].map(|operand| views[operand].strides[axis].unsigned_abs());
            let continues = [0, 1].map(|operand| strides[operand] == batch.strides[operand] * batch.count);
            if extents[axis] != 1 {
                if batch.count == 1 {
                    batch.strides = strides;
                } else if continues != [true, true] {
                    break;
                }
            }
            batch.count *= extents[axis];
            batch.axes += 1;
        }
        batch
    }
}

impl Lower for BatchMatMul {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let shapes = [step.shape_of(0)?, step.shape_of(1)?];
        let product = self.product(shapes[0], shapes[1])?;
        let (mut m, n, k) = (product.m, product.n, product.k);
        let views = shapes.map(|shape| {
            let outer = shape.len().saturating_sub(2);
            View::of(&shape[..outer]).expanded(&product.outer)
        });
        let mut batch = Batch::of(&views);
        let calls = product.outer.len() - batch.axes;
        let calls: usize = product.outer[..calls].iter().product();
        if calls > MOST_GEMMS {
            let reason = format!("needs {calls} GEMMs, at most {MOST_GEMMS}");
            return Err(KernelError::Unsupported(reason));
        }
        let of_call = batch.count * m * n;
        // Rows of consecutive matrices are those of one.
        if batch.strides == [1, 0] && !self.transpose_a {
            m *= batch.count;
            batch.count = 1;
        }
        let [a, b] = [
            (self.transpose_a, [m, k], m * k),
            (self.transpose_b, [k, n], k * n),
        ];
        let matrix = |(transposed, [rows, columns], size): (bool, [usize; 2], usize), stride: usize| Matrix {
            transposed,
            stride: if transposed { rows } else { columns },
            batch_stride: stride * size,
        };
        let gemm = Gemm {
            batch: batch.count,
            a: matrix(a, batch.strides[0]),
            b: matrix(b, batch.strides[1]),
            c: Matrix::rows(n).every(m * n),
            ..Gemm::new(m, n, k, to_hip(step.plan.dtype()))
        };
        let element = step.element();
        let starts = views.map(|view| {
            let axes = view.extents.len() - batch.axes;
            let outer = View {
                extents: view.extents[..axes].to_vec(),
                strides: view.strides[..axes].to_vec(),
                offset: 0,
            };
            outer.indices().collect::<Vec<usize>>()
        });
        let (from_a, from_b) = (step.address(0)?, step.address(1)?);
        let pairs = starts[0].iter().zip(&starts[1]).enumerate();
        let calls = pairs.map(|(call, (&a, &b))| Call::Gemm {
            gemm,
            a: from_a.offset(a * product.m * k * element),
            b: from_b.offset(b * k * n * element),
            c: step.out.offset(call * of_call * element),
        });
        Ok(calls.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(a: &[usize], b: &[usize], outer: &[usize]) -> (usize, usize, [usize; 2]) {
        let views = [a, b].map(|shape| View::of(shape).expanded(outer));
        let batch = Batch::of(&views);
        (batch.count, batch.axes, batch.strides)
    }

    #[test]
    fn a_batch_has_matrices_at_equal_distances() {
        assert_eq!(batch(&[4, 3], &[4, 3], &[4, 3]), (12, 2, [1, 1]));
        assert_eq!(batch(&[4, 3], &[], &[4, 3]), (12, 2, [1, 0]));
        assert_eq!(batch(&[4, 3], &[3], &[4, 3]), (3, 1, [1, 1]));
        assert_eq!(batch(&[4, 1], &[4, 3], &[4, 3]), (3, 1, [0, 1]));
        assert_eq!(batch(&[4, 1, 3], &[4, 1, 3], &[4, 1, 3]), (12, 3, [1, 1]));
        assert_eq!(batch(&[], &[], &[]), (1, 0, [0, 0]));
        assert_eq!(batch(&[1, 1], &[5, 1], &[5, 1]), (5, 2, [0, 1]));
    }
}
