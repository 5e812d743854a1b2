// Arguments of swiglu and swiglu_norm.
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

/// Threads per block of `swiglu_norm`.
constexpr unsigned SWIGLU_NORM_THREADS = 128;
/// Maximum number of channels of a row that a wave of `swiglu_norm` takes. A block takes a longer row.
constexpr unsigned SWIGLU_NORM_ROW = 2048;

/// `swiglu_norm`: g = silu(gate) · value, where gate and value are the halves of each row of x;
/// out = (g − mean(g)) / √(variance(g) + epsilon) · weight + bias, over the first `normed` columns of each row.
struct SwiGluNormArgs {
    /// T `[rows, 2, channels]`: the gates, then the values.
    DEVICE_POINTER(const void) x;
    /// T `[channels]`.
    DEVICE_POINTER(const void) weight;
    /// T `[channels]`.
    DEVICE_POINTER(const void) bias;
    /// T, or bytes, `[rows, channels]`. Aliases no input.
    DEVICE_POINTER(void) out;
    /// Rows of `x` and `out`.
    unsigned rows;
    /// Columns of `out`, of the gates and of the values.
    unsigned channels;
    /// Added to the variance.
    float epsilon;
    /// 0: `out` is T. Otherwise `out` is E4M3 (include/float8.hpp) of the result times this.
    float float8_factor;
    /// 0: a row per wave; 1: a row per block.
    unsigned whole_block;
    /// Number of normed columns; the other columns of the result are 0.
    unsigned normed;
};

} // namespace hipvit
