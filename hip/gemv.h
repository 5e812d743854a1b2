// Arguments of gemv.
#pragma once
#include "activation.h"
#include "device_pointer.h"

namespace hipvit {

/// Maximum rows of x.
constexpr unsigned GEMV_ROWS = 4;
/// Channels of a block.
constexpr unsigned GEMV_CHANNELS = 4;
/// Threads per block.
constexpr unsigned GEMV_THREADS = 128;

/// `gemv`: out = activation(x · weightᵀ + bias) + residual, for few rows of x.
struct GemvArgs {
    /// T `[rows, inner]`.
    DEVICE_POINTER(const void) x;
    /// T `[channels, inner]`.
    DEVICE_POINTER(const void) weight;
    /// T `[channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[rows, channels]`. May alias `residual`.
    DEVICE_POINTER(void) out;
    /// Rows of x, at most [`GEMV_ROWS`].
    unsigned rows;
    /// Rows of the weight.
    unsigned channels;
    /// Columns of x and the weight.
    unsigned inner;
    /// One of [`ActivationCode`].
    unsigned activation;
};

} // namespace hipvit
