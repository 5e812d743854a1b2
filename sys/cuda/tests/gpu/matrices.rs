//! Matrices of three element types, and GEMM by plain loops in f64.

use half::{bf16, f16};
use hipvit_sys::rocblas::rocblas_datatype_;

use crate::device::numbers;

/// A 16- or 32-bit float.
pub(crate) trait Float: Copy + Default {
    const ROCBLAS: rocblas_datatype_;
    /// The distance from 1 to the next number.
    const EPSILON: f32;
    fn round(value: f32) -> Self;
    fn widen(self) -> f32;
}

macro_rules! float {
    ($type:ty, $rocblas:ident, $epsilon:expr, $round:expr, $widen:expr) => {
        impl Float for $type {
            const ROCBLAS: rocblas_datatype_ = rocblas_datatype_::$rocblas;
            const EPSILON: f32 = $epsilon;
            fn round(value: f32) -> Self {
                $round(value)
            }
            fn widen(self) -> f32 {
                $widen(self)
            }
        }
    };
}
float!(
    f32,
    rocblas_datatype_f32_r,
    f32::EPSILON,
    std::convert::identity,
    std::convert::identity
);
float!(
    f16,
    rocblas_datatype_f16_r,
    1.0 / 1024.0,
    f16::from_f32,
    f16::to_f32
);
float!(
    bf16,
    rocblas_datatype_bf16_r,
    1.0 / 128.0,
    bf16::from_f32,
    bf16::to_f32
);

/// Sizes that are no tile's, but multiples of 8, as vectorized loads need.
pub(crate) const M: usize = 72;
pub(crate) const N: usize = 104;
pub(crate) const K: usize = 136;

/// `K` products below 1, summed in f32, and the sum rounded once to its type.
pub(crate) fn tolerance<T: Float>(expected: &[f32]) -> f32 {
    let largest = expected
        .iter()
        .fold(0.0_f32, |largest, value| largest.max(value.abs()));
    K as f32 * f32::EPSILON * 4.0 + largest * T::EPSILON
}

/// Numbers between -1 and 1, rounded to the type.
pub(crate) fn rounded<T: Float>(count: usize, seed: u32) -> Vec<T> {
    numbers(count, seed).into_iter().map(T::round).collect()
}

/// The GEMM `Aᵀ·B + beta·C`, all column-major: A is K×M, B is K×N.
pub(crate) fn gemm<T: Float>(a: &[T], b: &[T], beta: f64, c: &[T]) -> Vec<f32> {
    let entry = |index: usize| {
        let (row, column) = (index % M, index / M);
        let sum: f64 = (0..K)
            .map(|k| f64::from(a[row * K + k].widen()) * f64::from(b[column * K + k].widen()))
            .sum();
        let old = c.get(index).map_or(0.0, |c| beta * f64::from(c.widen()));
        (sum + old) as f32
    };
    (0..M * N).map(entry).collect()
}
