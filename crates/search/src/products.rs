//! Inner products of rows with queries, in f32.
//!
//! Up to [`MAX_DIRECT`] queries are multiplied row by row, which is as fast as memory is read. More queries are multiplied by rten-gemm.

use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions, PackedBMatrix};
use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};
use rten_tensor::NdTensorView;

/// Maximum number of queries that are multiplied row by row.
const MAX_DIRECT: usize = 3;

/// Queries, prepared for products with many rows.
pub(crate) struct Queries<'a> {
    values: &'a [f32],
    width: usize,
    packed: Option<PackedBMatrix<f32>>,
}

impl<'a> Queries<'a> {
    /// Prepares `values` `[queries, width]`.
    pub(crate) fn new(values: &'a [f32], width: usize) -> Self {
        let count = values.len() / width;
        let packed = (count > MAX_DIRECT).then(|| {
            let view = NdTensorView::from_data([count, width], values);
            // Creating an executor selects the kernel, which is cheap.
            GemmExecutor::new().prepack_b(view.transposed())
        });
        Self {
            values,
            width,
            packed,
        }
    }

    /// Returns the number of queries.
    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Writes the products with `rows` `[n, width]` to `out` as `[n, queries]`.
    pub(crate) fn products(&self, rows: &[f32], out: &mut Vec<f32>) {
        let count = rows.len() / self.width;
        out.resize(count * self.len(), 0.0);
        let multiplied = self.packed.as_ref().is_some_and(|packed| {
            let a = NdTensorView::from_data([count, self.width], rows);
            let (a, b) = (GemmInputA::Unpacked(a), GemmInputB::Packed(packed));
            GemmExecutor::new()
                .gemm(out, a, b, GemmOptions::default())
                .is_ok()
        });
        if !multiplied {
            RowProducts {
                queries: self.values,
                rows,
                width: self.width,
                out,
            }
            .dispatch();
        }
    }
}

/// Writes the squared length of each of `rows` `[n, width]` to `out`.
pub(crate) fn squared_lengths(rows: &[f32], width: usize, out: &mut Vec<f32>) {
    out.resize(rows.len() / width, 0.0);
    SquaredLengths { rows, width, out }.dispatch();
}

struct RowProducts<'a> {
    queries: &'a [f32],
    rows: &'a [f32],
    width: usize,
    out: &'a mut [f32],
}

impl SimdOp for RowProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let count = self.queries.len() / self.width;
        let rows = self.rows.chunks_exact(self.width);
        for (row, out) in rows.zip(self.out.chunks_exact_mut(count)) {
            for (query, out) in self.queries.chunks_exact(self.width).zip(out) {
                *out = dot(isa, row, query);
            }
        }
    }
}

struct SquaredLengths<'a> {
    rows: &'a [f32],
    width: usize,
    out: &'a mut [f32],
}

impl SimdOp for SquaredLengths<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        for (row, out) in self.rows.chunks_exact(self.width).zip(self.out) {
            *out = dot(isa, row, row);
        }
    }
}

/// Returns the inner product of two slices of equal length.
#[inline(always)]
fn dot<I: Isa>(isa: I, a: &[f32], b: &[f32]) -> f32 {
    const SUMS: usize = 4;
    let ops = isa.f32();
    let lanes = ops.len();
    let mut sums = [ops.zero(); SUMS];
    let (mut a_parts, mut b_parts) = (a.chunks_exact(lanes * SUMS), b.chunks_exact(lanes * SUMS));
    for (a, b) in a_parts.by_ref().zip(b_parts.by_ref()) {
        let (a, b) = (ops.load_many::<SUMS>(a), ops.load_many::<SUMS>(b));
        for part in 0..SUMS {
            sums[part] = ops.mul_add(a[part], b[part], sums[part]);
        }
    }
    let mut sum = ops.add(ops.add(sums[0], sums[1]), ops.add(sums[2], sums[3]));
    let (mut a_parts, mut b_parts) = (
        a_parts.remainder().chunks_exact(lanes),
        b_parts.remainder().chunks_exact(lanes),
    );
    for (a, b) in a_parts.by_ref().zip(b_parts.by_ref()) {
        sum = ops.mul_add(ops.load(a), ops.load(b), sum);
    }
    let rest = a_parts.remainder().iter().zip(b_parts.remainder());
    ops.sum(sum) + rest.map(|(a, b)| a * b).sum::<f32>()
}
