//! Kernel results in E4M3 instead of the kernels' dtype: their factor and their size. The bytes are those of
//! [`Float8::E4M3`](crate::float8::Float8), saturated. On gfx942 they are FNUZ numbers of half the value.

use super::KernelError;

/// Returns the factor of a result that is divided by `scale` and written as E4M3. NaN, which [`check`] rejects, if it is not a normal
/// number.
pub(super) fn factor(scale: f32) -> f32 {
    let factor = 1.0 / scale;
    if factor.is_normal() && factor > 0.0 {
        factor
    } else {
        f32::NAN
    }
}

/// Checks the factor in a kernel's plan.
pub(super) fn check(factor: f32) -> Result<(), KernelError> {
    if factor.is_nan() {
        Err("its result has no scale: that must be a normal positive number".into())
    } else {
        Ok(())
    }
}

/// Returns the bytes of a result's element. `element` is the size in the kernels' dtype, which applies for a factor of 0.
pub(super) fn element(element: usize, factor: f32) -> usize {
    if factor == 0.0 { element } else { 1 }
}
