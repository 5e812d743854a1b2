// Slopes of the activation functions, in f32.
#pragma once
#include "activation.hpp"

namespace hipvit {

// Derivative of x · σ(s(x)), where `slope` is s'(x). With `secant`, σ(s).
HIPVIT_DEVICE float gated_slope(float x, float s, float slope, bool secant) {
    const float decay = exponential(-s), sigma = quotient(1.0f, 1.0f + decay);
    if (secant) return sigma;
    // 1 − σ(s), without cancellation. For s ≤ 0, decay may be infinite.
    const float rest = s > 0.0f ? decay * sigma : 1.0f - sigma;
    return multiply_add(x * sigma * rest, slope, sigma);
}

// Φ(x) + x · φ(x). With `secant`, Φ(x).
template <class T> HIPVIT_DEVICE float gelu_erf_slope_as(float x, bool secant) {
    // The density is 0 beyond |x| = 20, and x² must not overflow.
    const float bounded = smaller(absolute(x), 20.0f), u = tail_variable_as<T>(bounded), density = density_as<T>(bounded);
    const float tail = normal_tail_ratio(u) * u * density;
    const float cdf = x > 0.0f ? 1.0f - tail : tail;
    const float slope = multiply_add((x < 0.0f ? -bounded : bounded) * 0.398942280f, density, cdf);
    return x != x ? x : secant ? cdf : slope;
}

HIPVIT_DEVICE float gelu_tanh_slope(float x, bool secant) {
    constexpr float FACTOR = 1.5957692f, CUBIC = 0.044715f * FACTOR;
    // Beyond ±20 the slope is 0 or 1, and x³ must not overflow.
    x = smaller(larger(x, -20.0f), 20.0f) + (x - x);
    const float square = x * x;
    return gated_slope(x, x * multiply_add(square, CUBIC, FACTOR), multiply_add(square, 3.0f * CUBIC, FACTOR), secant);
}

HIPVIT_DEVICE float tanh_slope(float x, bool secant) {
    const float y = hyperbolic_tangent(x);
    return secant && x != 0.0f ? quotient(y, x) : multiply_add(-y, y, 1.0f);
}

// Elements x, rounded to T, become f'(x) for the activation function f of `code`. With `secant`, f(x) / x. `code` and `secant` are the same
// for all threads.
template <class T, int N> HIPVIT_DEVICE void activation_slopes_as(u32 code, bool secant, float (&x)[N]) {
    const auto each = [&](const auto &f) { for_each_element(x, [&](float v) { return f(v, secant); }); };
    switch (ActivationCode(code)) {
    case ActivationCode::GeluErf: return each(gelu_erf_slope_as<T>);
    case ActivationCode::GeluTanh: return each(gelu_tanh_slope);
    case ActivationCode::QuickGelu: return each([](float v, bool s) { return gated_slope(v, 1.702f * v, 1.702f, s); });
    case ActivationCode::Silu: return each([](float v, bool s) { return gated_slope(v, v, 1.0f, s); });
    case ActivationCode::Relu: return each([](float v, bool) { return v > 0.0f ? 1.0f : 0.0f; });
    case ActivationCode::Tanh: return each(tanh_slope);
    default: return each([](float, bool) { return 1.0f; });
    }
}
HIPVIT_DEVICE float activation_slope(u32 code, bool secant, float x) {
    float element[1] = {x};
    activation_slopes_as<f32>(code, secant, element);
    return element[0];
}

} // namespace hipvit
