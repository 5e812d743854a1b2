//! Matrix products of the reference implementation: `matrixmultiply` on several threads.

use ndarray::linalg::general_mat_mul;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, ShapeBuilder};

use crate::array::Real;

/// Returns `rows` rows of `columns` elements, `stride` apart. Empty if there are too few elements, which the shape rules exclude.
pub(crate) fn strided<T>(values: &[T], [rows, columns]: [usize; 2], stride: usize) -> ArrayView2<'_, T> {
    let view = ArrayView2::from_shape((rows, columns).strides((stride, 1)), values);
    view.unwrap_or_else(|_| ArrayView2::from(&[] as &[[T; 0]; 0]))
}

/// Returns rows of `columns` elements.
pub(crate) fn rows<T>(values: &[T], columns: usize) -> ArrayView2<'_, T> {
    strided(values, [values.len() / columns.max(1), columns], columns)
}

/// Returns rows of `columns` elements, mutable.
pub(crate) fn rows_mut<T>(values: &mut [T], columns: usize) -> ArrayViewMut2<'_, T> {
    let rows = values.len() / columns.max(1);
    let view = ArrayViewMut2::from_shape((rows, columns), values);
    view.unwrap_or_else(|_| ArrayViewMut2::from(&mut [] as &mut [[T; 0]; 0]))
}

/// Returns `a · b`.
pub(crate) fn product<T: Real>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) -> Array2<T> {
    let mut c = Array2::from_elem((a.nrows(), b.ncols()), T::ZERO);
    gemm(a, b, c.view_mut());
    c
}

/// Adds `a · b` to `c`. Threads divide the rows or columns, so that each element has the same order of sums for any number of threads.
pub(crate) fn gemm<T: Real>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, mut c: ArrayViewMut2<'_, T>) {
    /// Minimum number of multiplications that amortises starting threads.
    const SMALL: usize = 1 << 18;
    let (m, n) = c.dim();
    let threads = rayon::current_num_threads();
    if threads == 1 || m * n * a.ncols() < SMALL {
        return general_mat_mul(T::ONE, &a, &b, T::ONE, &mut c);
    }
    let axis = Axis(usize::from(n > m));
    let chunk = c.len_of(axis).div_ceil(threads).max(16);
    match axis {
        Axis(0) => c
            .axis_chunks_iter_mut(axis, chunk)
            .into_par_iter()
            .zip(a.axis_chunks_iter(axis, chunk))
            .for_each(|(mut c, a)| general_mat_mul(T::ONE, &a, &b, T::ONE, &mut c)),
        _ => c
            .axis_chunks_iter_mut(axis, chunk)
            .into_par_iter()
            .zip(b.axis_chunks_iter(axis, chunk))
            .for_each(|(mut c, b)| general_mat_mul(T::ONE, &a, &b, T::ONE, &mut c)),
    }
}
