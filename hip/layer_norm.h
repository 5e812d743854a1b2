// Arguments of layer_norm.
#pragma once
#include "device_pointer.h"
#include "row.h"

namespace hipvit {

/// Threads per block of `layer_norm_few` and `rms_norm_few`.
constexpr unsigned FEW_ROWS_THREADS = 64;
/// Maximum number of rows of `layer_norm_few` and `rms_norm_few`. Their small blocks load weight and bias early, which has the lower latency
/// for few rows. On an H200 (CUDA 13, bf16, in a graph) 197 rows of 384, 768 and 1024 channels take 2.3, 2.4 and 2.6 µs instead of
/// 2.8, 3.3 and 3.7. 1576 rows take 2.9, 3.3 and 3.8 µs instead of 3.2, 3.8 and 4.4. 12608 rows of 768 channels take 13.2 instead of 13.0.
constexpr unsigned FEW_ROWS = 4096;

/// Threads per block of `layer_norm_wide` and `rms_norm_wide`.
constexpr unsigned WIDE_ROW_THREADS = 128;
/// Maximum number of channels of a row that a wave of `layer_norm_wide` and `rms_norm_wide` takes, so that no wave waits for another. A
/// block takes a longer row.
constexpr unsigned WIDE_ROW = 2048;

/// `layer_norm`, `layer_norm_few`, `layer_norm_wide`: s = x + residual; out = (s − mean(s)) / √(variance(s) + epsilon) · weight + bias, over each row.
/// `rms_norm`, `rms_norm_few`, `rms_norm_wide`: s = x + residual; out = s / √(mean(s²) + epsilon) · weight, over each row.
struct LayerNormArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[channels]`.
    DEVICE_POINTER(const void) weight;
    /// T `[channels]`. Null for `rms_norm` only.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`, receives s. May be null; may alias `x` or `residual`.
    DEVICE_POINTER(void) sum;
    /// T, or bytes, `[rows, channels]`. May alias `x`; bytes alias no input.
    DEVICE_POINTER(void) out;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// Added to the variance, or to the mean square.
    float epsilon;
    /// 0: a row per wave; 1: a row per block.
    unsigned whole_block;
    /// 0: `out` is T. Otherwise `out` is E4M3 (include/float8.hpp) of the result times this.
    float float8_factor;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
