// Arguments of layer_norm.
#pragma once
#include "device_pointer.h"
#include "row.h"

namespace hipvit {

/// `layer_norm`: s = x + residual; out = (s − mean(s)) / √(variance(s) + epsilon) · weight + bias, over each row.
struct LayerNormArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[channels]`.
    DEVICE_POINTER(const void) weight;
    /// T `[channels]`.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`: receives s. May be null; may alias `x` or `residual`.
    DEVICE_POINTER(void) sum;
    /// T `[rows, channels]`. May alias `x`.
    DEVICE_POINTER(void) out;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// Added to the variance.
    float epsilon;
    /// 0: a row per wave; 1: a row per block.
    unsigned whole_block;
};

} // namespace hipvit
