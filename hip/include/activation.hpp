// The activation functions, in f32. Each is relatively accurate in its left tail too, where the textbook forms cancel.
// src/ops/activation.rs has the same formulas.
#pragma once
#include "activation.h"
#include "device.hpp"

namespace hipvit {

// x · σ(z)
HIPVIT_DEVICE float gated(float x, float z) {
    return quotient(x, 1.0f + exponential(-z));
}

// x · σ(z) for a result that is rounded to T. For 16 bits the accuracy of the hardware's instructions is enough: 2⁻¹⁷ for |z| < 88.
template <class T> HIPVIT_DEVICE float gated_as(float x, float z) {
    if constexpr (sizeof(T) == 2) {
        return x * fast_reciprocal(1.0f + fast_exp2(-1.44269504f * z));
    } else {
        return gated(x, z);
    }
}

// The polynomial in u = 1/(1 + 0.35·t) by which Φ(−t) = exp(−t²/2)·u·polynomial, for t ≥ 0.
HIPVIT_DEVICE float normal_tail_ratio(float u) {
    float ratio = -0.02914591f;
    ratio = multiply_add(ratio, u, 0.14397162f);
    ratio = multiply_add(ratio, u, -0.2557141f);
    ratio = multiply_add(ratio, u, 0.159174f);
    ratio = multiply_add(ratio, u, -0.02310973f);
    ratio = multiply_add(ratio, u, 0.10550796f);
    ratio = multiply_add(ratio, u, 0.11983287f);
    ratio = multiply_add(ratio, u, 0.13986187f);
    ratio = multiply_add(ratio, u, 0.1396214f);
    return ratio;
}

// x·Φ(x) = max(x, 0) − |x|·exp(−x²/2)·R(|x|), R fitted by a polynomial in u = 1/(1 + 0.35·|x|).
HIPVIT_DEVICE float gelu_erf(float x) {
    const float t = absolute(x), u = quotient(1.0f, multiply_add(t, 0.35f, 1.0f));
    const float ratio = normal_tail_ratio(u);
    // The tail is 0 beyond |x| = 20, and x² must not overflow.
    const float bounded = smaller(t, 20.0f);
    const float tail = ratio * u * exponential(-0.5f * bounded * bounded);
    return x != x ? x : larger(x, 0.0f) - bounded * tail;
}

// x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))) = x · σ(2·…)
HIPVIT_DEVICE float gelu_tanh(float x) {
    constexpr float FACTOR = 1.5957692f;
    return gated(x, x * multiply_add(x * x, 0.044715f * FACTOR, FACTOR));
}

// An odd polynomial near 0, where the quotient would cancel.
HIPVIT_DEVICE float hyperbolic_tangent(float x) {
    const float t = absolute(x), square = x * x;
    float p = -0.0056672f;
    p = multiply_add(p, square, 0.02060638f);
    p = multiply_add(p, square, -0.05373007f);
    p = multiply_add(p, square, 0.13331331f);
    p = multiply_add(p, square, -0.33333278f);
    const float small = multiply_add(x * square, p, x);
    const float large = 1.0f - quotient(2.0f, exponential(2.0f * t) + 1.0f);
    return t < 0.625f ? small : x < 0.0f ? -large : large;
}

// `code` is the same for all threads.
HIPVIT_DEVICE float activate(u32 code, float x) {
    switch (ActivationCode(code)) {
    case ActivationCode::GeluErf: return gelu_erf(x);
    case ActivationCode::GeluTanh: return gelu_tanh(x);
    case ActivationCode::QuickGelu: return gated(x, 1.702f * x);
    case ActivationCode::Silu: return gated(x, x);
    case ActivationCode::Relu: return x > 0.0f ? x : x != x ? x : 0.0f;
    case ActivationCode::Tanh: return hyperbolic_tangent(x);
    default: return x;
    }
}

} // namespace hipvit
