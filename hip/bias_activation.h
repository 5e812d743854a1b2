// Arguments of bias_activation.
#pragma once
#include "activation.h"
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `bias_activation`: out = activation(x + bias) + residual.
struct BiasActivationArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T, or bytes, `[rows, channels]`. May alias `x` or `residual`; bytes alias no input.
    DEVICE_POINTER(void) out;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// One of [`ActivationCode`].
    unsigned activation;
    /// 0: `out` is T. Otherwise `out` is E4M3 (include/float8.hpp) of the result times this.
    float float8_factor;
};

} // namespace hipvit
