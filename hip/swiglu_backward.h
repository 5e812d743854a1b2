// Arguments of swiglu_backward.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `swiglu_backward`: the gradient of silu(gate) · value, where gate and value are the halves of each row of x.
struct SwiGluBackwardArgs {
    /// T `[rows, 2, channels]`: the gates, then the values.
    DEVICE_POINTER(const void) x;
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) dy;
    /// T `[rows, 2, channels]`. May alias `x`.
    DEVICE_POINTER(void) dx;
    /// Rows of all tensors.
    unsigned rows;
    /// Columns of `dy`.
    unsigned channels;
    /// 1: silu(gate) / gate instead of the derivative of silu.
    unsigned secant;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
