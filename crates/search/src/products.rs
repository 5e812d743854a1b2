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

    /// Writes the products with `rows` `[n, width]` to `out` as `[n, queries]`. Writes the squared length of each row to `squares`, if it is
    /// given.
    pub(crate) fn products(&self, rows: &[f32], out: &mut Vec<f32>, squares: Option<&mut Vec<f32>>) {
        let count = rows.len() / self.width;
        out.resize(count * self.len(), 0.0);
        let multiplied = self.packed.as_ref().is_some_and(|packed| {
            let a = NdTensorView::from_data([count, self.width], rows);
            let (a, b) = (GemmInputA::Unpacked(a), GemmInputB::Packed(packed));
            GemmExecutor::new()
                .gemm(out, a, b, GemmOptions::default())
                .is_ok()
        });
        if multiplied {
            if let Some(squares) = squares {
                squared_lengths(rows, self.width, squares);
            }
            return;
        }
        let squares = match squares {
            Some(squares) => {
                squares.resize(count, 0.0);
                squares.as_mut_slice()
            }
            None => &mut [],
        };
        RowProducts {
            queries: self.values,
            rows,
            width: self.width,
            out,
            squares,
        }
        .dispatch();
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
    /// Squared length of each row. Empty if it is not wanted.
    squares: &'a mut [f32],
}

impl SimdOp for RowProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let count = self.queries.len() / self.width;
        let rows = self.rows.chunks_exact(self.width);
        let mut squares = self.squares.iter_mut();
        for (row, out) in rows.zip(self.out.chunks_exact_mut(count)) {
            let mut products = self.queries.chunks_exact(self.width).zip(out);
            // The row is loaded once for its length and the first query.
            if let Some(square) = squares.next()
                && let Some((query, out)) = products.next()
            {
                [*out, *square] = dots(isa, row, [query, row]);
            }
            for (query, out) in products {
                [*out] = dots(isa, row, [query]);
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
            [*out] = dots(isa, row, [row]);
        }
    }
}

/// Returns the inner products of `a` with slices of its length.
///
/// Vectors stay in loops and out of closures, which would not be compiled for the instruction set.
#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "iterators of vectors would not be compiled for the instruction set"
)]
fn dots<I: Isa, const N: usize>(isa: I, a: &[f32], others: [&[f32]; N]) -> [f32; N] {
    const SUMS: usize = 4;
    let ops = isa.f32();
    let lanes = ops.len();
    let mut sums = [[ops.zero(); SUMS]; N];
    let step = lanes * SUMS;
    let whole = a.len() / step * step;
    let mut at = 0;
    while at < whole {
        for part in 0..SUMS {
            let begin = at + part * lanes;
            let x = ops.load(&a[begin..begin + lanes]);
            for n in 0..N {
                let y = ops.load(&others[n][begin..begin + lanes]);
                sums[n][part] = ops.mul_add(x, y, sums[n][part]);
            }
        }
        at += step;
    }
    while at + lanes <= a.len() {
        let x = ops.load(&a[at..at + lanes]);
        for n in 0..N {
            let y = ops.load(&others[n][at..at + lanes]);
            sums[n][0] = ops.mul_add(x, y, sums[n][0]);
        }
        at += lanes;
    }
    let mut results = [0.0; N];
    for n in 0..N {
        let [first, second, third, fourth] = sums[n];
        results[n] = ops.sum(ops.add(ops.add(first, second), ops.add(third, fourth)));
        for index in at..a.len() {
            results[n] += a[index] * others[n][index];
        }
    }
    results
}
