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
        return x * fast_reciprocal(1.0f + fast_exp2(-LOG2_E * z));
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

// exp(−t²/2) and u = 1/(1 + 0.35·t) for a result that is rounded to T, and 0 ≤ t ≤ 20. For 16 bits the accuracy of the hardware's
// instructions is enough.
template <class T> HIPVIT_DEVICE float density_as(float t) {
    if constexpr (sizeof(T) == 2) {
        return fast_exp2(-0.72134752f * t * t);
    } else {
        return exponential(-0.5f * t * t);
    }
}
template <class T> HIPVIT_DEVICE float tail_variable_as(float t) {
    const float inverse = multiply_add(t, 0.35f, 1.0f);
    if constexpr (sizeof(T) == 2) {
        return fast_reciprocal(inverse);
    } else {
        return quotient(1.0f, inverse);
    }
}

// x·Φ(x) = max(x, 0) − |x|·exp(−x²/2)·R(|x|), R fitted by a polynomial in u = 1/(1 + 0.35·|x|).
template <class T> HIPVIT_DEVICE float gelu_erf_as(float x) {
    // The tail is 0 beyond |x| = 20, and x² must not overflow.
    const float bounded = smaller(absolute(x), 20.0f), u = tail_variable_as<T>(bounded);
    const float tail = normal_tail_ratio(u) * u * density_as<T>(bounded);
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

template <int N, class F> HIPVIT_DEVICE void for_each_element(float (&x)[N], const F &f) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = f(x[i]);
}

// Activates elements that are rounded to T. `code` is the same for all threads.
template <class T, int N> HIPVIT_DEVICE void activate_as(u32 code, float (&x)[N]) {
    switch (ActivationCode(code)) {
    case ActivationCode::GeluErf: return for_each_element(x, gelu_erf_as<T>);
    case ActivationCode::GeluTanh: return for_each_element(x, gelu_tanh);
    case ActivationCode::QuickGelu: return for_each_element(x, [](float v) { return gated(v, 1.702f * v); });
    case ActivationCode::Silu: return for_each_element(x, [](float v) { return gated(v, v); });
    case ActivationCode::Relu: return for_each_element(x, [](float v) { return v > 0.0f ? v : v != v ? v : 0.0f; });
    case ActivationCode::Tanh: return for_each_element(x, hyperbolic_tangent);
    default: return;
    }
}
// `code` is the same for all threads.
HIPVIT_DEVICE float activate(u32 code, float x) {
    float element[1] = {x};
    activate_as<f32>(code, element);
    return element[0];
}

} // namespace hipvit
