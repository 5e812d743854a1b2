// Arguments of bias_activation, and the activations' codes.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `activation` of [`BiasActivationArgs`].
enum class ActivationCode : unsigned {
    /// The identity.
    None,
    /// x · Φ(x), the exact GELU.
    GeluErf,
    /// GELU by tanh.
    GeluTanh,
    /// x · σ(1.702 · x).
    QuickGelu,
    /// x · σ(x).
    Silu,
    /// max(x, 0).
    Relu,
    /// The hyperbolic tangent.
    Tanh,
};

/// `bias_activation`: out = activation(x + bias) + residual.
struct BiasActivationArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[rows, channels]`. May alias `x` or `residual`.
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
