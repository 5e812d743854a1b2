// Arguments of activation_backward.
#pragma once
#include "activation.h"
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `activation_backward`: dx = f'(x) · dy for an activation function f.
struct ActivationBackwardArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) dy;
    /// T `[rows, channels]`. May alias `x` or `dy`.
    DEVICE_POINTER(void) dx;
    /// f32 `[⌈rows / chunk⌉, channels]`: sums of the rows of dx. May be null.
    DEVICE_POINTER(float) sums;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// One of [`ActivationCode`].
    unsigned activation;
    /// 1: f(x) / x instead of f'(x).
    unsigned secant;
    /// Rows of a chunk, at least 1. Unused without `sums`.
    unsigned chunk;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
