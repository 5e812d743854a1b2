// Arguments of int8_gemm.
#pragma once
#include "activation.h"
#include "device_pointer.h"

namespace hipvit {

/// Rows and channels of a block's tile.
constexpr unsigned INT8_GEMM_TILE = 128;
/// Threads per block.
constexpr unsigned INT8_GEMM_THREADS = 256;

/// `int8_gemm`: out = activation((x · weightᵀ − zero · column_sums) · column_scale · scale + bias) + residual. x and the weight are signed
/// bytes; each row of x has a scale and a zero point.
struct Int8GemmArgs {
    /// i8 `[rows, inner]`, from `quantize_int8`.
    DEVICE_POINTER(const void) x;
    /// i8 `[channels, inner]`.
    DEVICE_POINTER(const void) weight;
    /// f32 `[rows, 2]`, from `quantize_int8`: scale and zero − 128 of each row.
    DEVICE_POINTER(const void) ranges;
    /// f32 `[channels]`: the scale of each output channel of the weight.
    DEVICE_POINTER(const void) scales;
    /// i32 `[channels]`: the sum of the weight's bytes of each output channel.
    DEVICE_POINTER(const void) column_sums;
    /// T `[channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[rows, channels]`. May alias `residual`.
    DEVICE_POINTER(void) out;
    /// Rows of x.
    unsigned rows;
    /// Rows of the weight.
    unsigned channels;
    /// Columns of x and the weight.
    unsigned inner;
    /// One of [`ActivationCode`].
    unsigned activation;
};

} // namespace hipvit
