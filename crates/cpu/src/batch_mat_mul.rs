//! Products of matrices, for each index of the axes before them.

use hipvit_graph::op::{BatchMatMul, OpError};
use rayon::prelude::*;
use rten_tensor::Matrix;

use super::gemm::{self, Epilogue};
use super::mat_mul::multiply;
use super::rows::SharedLoop;
use super::{CpuOp, Operands};

impl CpuOp for BatchMatMul {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let shapes = [operands.batched_shape(0)?, operands.batched_shape(1)?];
        let product = self.product(shapes[0], shapes[1])?;
        let (m, n, k) = (product.m, product.n, product.k);
        let [starts_a, starts_b] = shapes.map(|shape| Self::matrices(shape, &product.outer));
        let (a, b) = (operands.values(0)?, operands.values(1)?);
        let out = &mut *results[0];
        if m * n == 0 {
            return Ok(());
        }
        let rows = |start: usize, first: usize, count: usize| {
            if self.transpose_a {
                Ok(gemm::strided(&a[start + first..], k, count, m)?.transposed())
            } else {
                gemm::strided(&a[start + first * k..], count, k, k)
            }
        };
        let columns = |start: usize, first: usize, count: usize| -> Result<Matrix<'_>, OpError> {
            if self.transpose_b {
                Ok(gemm::strided(&b[start + first * k..], count, k, k)?.transposed())
            } else {
                gemm::strided(&b[start + first..], k, count, n)
            }
        };
        let pairs: Vec<(usize, usize)> = starts_a.into_iter().zip(starts_b).collect();
        // Few matrices are divided among threads, many are given to one each.
        if pairs.len() < 2 * rayon::current_num_threads() {
            let mut pairs = pairs.into_iter().zip(out.chunks_exact_mut(m * n));
            return pairs.try_for_each(|((a, b), out)| {
                let left = |first, count| rows(a, first, count);
                let right = |first, count| columns(b, first, count);
                multiply([&left, &right], [m, n], out)
            });
        }
        let epilogue = Epilogue {
            scale: 1.0,
            bias: None,
        };
        let pairs = pairs.par_iter().zip(out.par_chunks_mut(m * n));
        pairs.try_for_each_item(|(&(a, b), out)| {
            gemm::multiply(rows(a, 0, m)?, &gemm::prepack(columns(b, 0, n)?), epilogue, out)
        })
    }
}
