// The activation functions' codes in the kernels' arguments.
#pragma once

namespace hipvit {

/// Activation function, the `activation` of the kernels' arguments.
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

} // namespace hipvit
