// Arguments of the kernels in quantize.hip.
#pragma once
#include "activation.h"
#include "device_pointer.h"
#include "elementwise.h"
#include "quantize_code.h"
#include "row.h"

namespace hipvit {

/// `quantize_float8`: out = E4M3 (include/float8.hpp) of x · factor.
/// `quantize_float8_rows`: out = E4M3 of x / scale, for a scale of each row.
/// `quantize_int8`: out = q − 128 with x ≈ scale · (q − zero), for a scale and a zero point of each row.
struct QuantizeArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// Bytes `[rows, channels]`. Aliases no input.
    DEVICE_POINTER(void) out;
    /// f32 `[rows, 2]`: scale and zero − 128 of each row; for `quantize_float8_rows` f32 `[rows]`: what the bytes of each row are
    /// multiplied by. Null for `quantize_float8`, and for it alone.
    DEVICE_POINTER(void) ranges;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// One of [`QuantizeCode`].
    unsigned code;
    /// Of `Float8` what multiplies x, of `Fixed` the scale.
    float factor;
    /// Of `Fixed` the zero point, 0 to 255.
    unsigned zero;
    /// Of all but `quantize_float8`, 0: a row per wave; 1: a row per block.
    unsigned whole_block;
};

/// `dequantize`: out = activation((sums − zero · column_sums) · column_scale · scale + bias) + residual.
/// `dequantize_float8`: out = activation(sums · column_scale · scale + bias) + residual.
struct DequantizeArgs {
    /// i32 `[rows, channels]`: of the products of `quantize_int8`'s bytes with a weight's; or f32, of `quantize_float8_rows`'s.
    DEVICE_POINTER(const void) sums;
    /// f32 `[rows, 2]`: `quantize_int8`'s; or `[rows]`: `quantize_float8_rows`'s.
    DEVICE_POINTER(const void) ranges;
    /// f32 `[channels]`: the scales of the weight's output channels.
    DEVICE_POINTER(const void) scales;
    /// i32 `[channels]`: the sums of the weight's bytes of each output channel. Null for `dequantize_float8`, and for it alone.
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
