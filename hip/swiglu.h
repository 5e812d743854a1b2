// Arguments of swiglu.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `swiglu`: out = silu(gate) · value, where gate and value are the halves of each row of x + bias.
struct SwiGluArgs {
    /// T `[rows, 2, channels]`: the gates, then the values.
    DEVICE_POINTER(const void) x;
    /// T `[2, channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T, or bytes, `[rows, channels]`. Aliases no input.
    DEVICE_POINTER(void) out;
    /// Rows of `x` and `out`.
    unsigned rows;
    /// Columns of `out`.
    unsigned channels;
    /// 0: `out` is T. Otherwise `out` is E4M3 (include/float8.hpp) of the result times this.
    float float8_factor;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
