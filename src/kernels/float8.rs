//! Results of kernels that are E4M3 instead of the kernels' dtype: what they are multiplied by, and their size.
//! The bytes are those of [`Float8::E4M3`](crate::float8::Float8), saturated; on gfx942 they are FNUZ numbers of half the value.

use super::KernelError;

/// What a result is multiplied by that is divided by `scale` and written as E4M3. NaN, which [`check`] refuses, if there is no such
/// normal number.
pub(super) fn factor(scale: f32) -> f32 {
    let factor = 1.0 / scale;
    if factor.is_normal() && factor > 0.0 {
        factor
    } else {
        f32::NAN
    }
}

/// What the plan of a kernel with this factor requires.
pub(super) fn check(factor: f32) -> Result<(), KernelError> {
    if factor.is_nan() {
        Err("its result has no scale: that must be a normal positive number".into())
    } else {
        Ok(())
    }
}

/// Bytes of an element of a result, if those of the kernel's dtype have `element`; a factor of 0 leaves them so.
pub(super) fn element(element: usize, factor: f32) -> usize {
    if factor == 0.0 { element } else { 1 }
}
