// Arguments of the kernels in quantize.hip.
#pragma once
#include "activation.h"
#include "device_pointer.h"
#include "elementwise.h"
#include "quantize_code.h"
#include "row.h"

namespace hipvit {

/// `quantize_float8`: out = E4M3 (include/float8.hpp) of x · factor.
/// `quantize_float8_rows`: out = E4M3 of x / scale, with a scale for each row.
/// `quantize_int8`: out = q − 128 with x ≈ scale · (q − zero), with a scale and a zero point for each row.
struct QuantizeArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// Bytes `[rows, channels]`. Aliases no input.
    DEVICE_POINTER(void) out;
    /// `quantize_int8`: f32 `[rows, 2]`, scale and zero − 128 of each row. `quantize_float8_rows`: f32 `[rows]`, the scale of each row's
    /// bytes. Null for `quantize_float8` only.
    DEVICE_POINTER(void) ranges;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// One of [`QuantizeCode`].
    unsigned code;
    /// The factor of x for `Float8`, the scale for `Fixed`.
    float factor;
    /// The zero point for `Fixed`, 0 to 255.
    unsigned zero;
    /// 0: a row per wave; 1: a row per block. `quantize_float8` ignores it.
    unsigned whole_block;
};

/// `dequantize`: out = activation((sums − zero · column_sums) · column_scale · scale + bias) + residual.
/// `dequantize_float8`: out = activation(sums · column_scale · scale + bias) + residual.
struct DequantizeArgs {
    /// `[rows, channels]`: sums of products with a weight's bytes. i32 for bytes of `quantize_int8`, f32 for those of
    /// `quantize_float8_rows`.
    DEVICE_POINTER(const void) sums;
    /// f32 `[rows, 2]` from `quantize_int8`, or `[rows]` from `quantize_float8_rows`.
    DEVICE_POINTER(const void) ranges;
    /// f32 `[channels]`: the scale of each output channel of the weight.
    DEVICE_POINTER(const void) scales;
    /// i32 `[channels]`: the sum of the weight's bytes of each output channel. Null for `dequantize_float8` only.
    DEVICE_POINTER(const void) column_sums;
    /// T `[channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[rows, channels]`. May alias `residual`.
    DEVICE_POINTER(void) out;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// One of [`ActivationCode`].
    unsigned activation;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
