// The operators of expressions, fn_<name> of float and bool, in f32. Each is accurate to some ULP, also where textbook forms cancel.
// crates/graph/src/op/elementwise/error_bound.rs has their bounds.
#pragma once
#include "activation.hpp"
#include "device.hpp"

namespace hipvit {

HIPVIT_DEVICE float fn_add(float x, float y) { return x + y; }
HIPVIT_DEVICE float fn_sub(float x, float y) { return x - y; }
HIPVIT_DEVICE float fn_mul(float x, float y) { return x * y; }
HIPVIT_DEVICE float fn_div(float x, float y) { return quotient(x, y); }
HIPVIT_DEVICE float fn_min(float x, float y) { return smaller(x, y); }
HIPVIT_DEVICE float fn_max(float x, float y) { return larger(x, y); }
HIPVIT_DEVICE float fn_neg(float x) { return -x; }
HIPVIT_DEVICE float fn_abs(float x) { return absolute(x); }
HIPVIT_DEVICE float fn_sqrt(float x) { return square_root(x); }

HIPVIT_DEVICE bool fn_less(float x, float y) { return x < y; }
HIPVIT_DEVICE bool fn_less_equal(float x, float y) { return x <= y; }
HIPVIT_DEVICE bool fn_equal(float x, float y) { return x == y; }
HIPVIT_DEVICE bool fn_and(bool x, bool y) { return x && y; }
HIPVIT_DEVICE bool fn_or(bool x, bool y) { return x || y; }
HIPVIT_DEVICE bool fn_not(bool x) { return !x; }
HIPVIT_DEVICE float fn_select(bool condition, float x, float y) { return condition ? x : y; }
HIPVIT_DEVICE bool fn_select(bool condition, bool x, bool y) { return condition ? x : y; }

HIPVIT_DEVICE float fn_round(float x) { return nearest(x); }
#if HIPVIT_AMD
HIPVIT_DEVICE float fn_floor(float x) { return __builtin_floorf(x); }
HIPVIT_DEVICE float fn_ceil(float x) { return __builtin_ceilf(x); }
HIPVIT_DEVICE float fn_trunc(float x) { return __builtin_truncf(x); }
#else
HIPVIT_DEVICE float fn_floor(float x) { return floorf(x); }
HIPVIT_DEVICE float fn_ceil(float x) { return ceilf(x); }
HIPVIT_DEVICE float fn_trunc(float x) { return truncf(x); }
#endif

// exponential, also of ±∞.
HIPVIT_DEVICE float fn_exp(float x) {
    return x != x ? x : exponential(smaller(larger(x, -200.0f), 200.0f));
}

// A polynomial near 0, where e^x − 1 would cancel.
HIPVIT_DEVICE float fn_exp_m1(float x) {
    float p = 1.98412698e-4f;
    p = multiply_add(p, x, 1.38888889e-3f);
    p = multiply_add(p, x, 8.33333333e-3f);
    p = multiply_add(p, x, 4.16666667e-2f);
    p = multiply_add(p, x, 1.66666667e-1f);
    p = multiply_add(p, x, 0.5f);
    const float small = multiply_add(x * x, p, x);
    return absolute(x) < 0.35f ? small : fn_exp(x) - 1.0f;
}

// x = 2^k · m with m between √½ and √2, and ln m by a polynomial in s = (m − 1) / (m + 1), as in FreeBSD's logf.
HIPVIT_DEVICE float fn_log(float x) {
    constexpr float LARGE = 33554432.0f; // 2^25
    const bool tiny = x < 1.17549435e-38f;
    const u32 bits = bits_of(tiny ? x * LARGE : x) + (0x3f800000 - 0x3f3504f3);
    const float k = float(int(bits >> 23) - 127 - (tiny ? 25 : 0));
    const float f = float_of((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
    const float s = quotient(f, 2.0f + f), z = s * s, w = z * z;
    const float r = multiply_add(z, multiply_add(w, 0.28498787f, 0.66666663f), w * multiply_add(w, 0.24279078f, 0.40000972f));
    const float half = 0.5f * f * f;
    const float y = multiply_add(s, half + r, k * 9.0580006e-6f) - half + f + k * 0.69313812f;
    if (x == 0.0f) return -infinity();
    return x == infinity() ? x : x < 0.0f || x != x ? float_of(0x7fc00000) : y;
}

// ln(1 + x) · x / ((1 + x) − 1) corrects the rounding of 1 + x.
HIPVIT_DEVICE float fn_log_1p(float x) {
    const float u = 1.0f + x, rounded = u - 1.0f;
    if (rounded == 0.0f) return x;
    return absolute(x) < 1e8f ? fn_log(u) * quotient(x, rounded) : fn_log(u);
}

HIPVIT_DEVICE float fn_tanh(float x) {
    return x != x ? x : hyperbolic_tangent(smaller(larger(x, -20.0f), 20.0f));
}

HIPVIT_DEVICE float fn_sigmoid(float x) { return quotient(1.0f, 1.0f + fn_exp(-x)); }

HIPVIT_DEVICE float fn_gelu(float x) { return gelu_erf_as<f32>(x); }

HIPVIT_DEVICE float fn_erf(float x) {
    const float t = absolute(x), square = x * x;
    float r = -5.96761703e-4f;
    r = multiply_add(r, square, 4.99119423e-3f);
    r = multiply_add(r, square, -2.67681349e-2f);
    r = multiply_add(r, square, 1.12819925e-1f);
    r = multiply_add(r, square, -3.76125336e-1f);
    r = multiply_add(r, square, 1.28379166e-1f);
    const float small = multiply_add(r, x, x);
    // 1 − e^p, whose tail is 0 beyond 4.
    const float bounded = smaller(t, 4.0f), squared = bounded * bounded;
    float p = multiply_add(-1.72853470e-5f, bounded, 3.83197126e-4f);
    const float q = multiply_add(-3.88396438e-3f, bounded, 2.42546219e-2f);
    p = multiply_add(p, squared, q);
    p = multiply_add(p, bounded, -1.06777877e-1f);
    p = multiply_add(p, bounded, -6.34846687e-1f);
    p = multiply_add(p, bounded, -1.28717512e-1f);
    p = multiply_add(p, bounded, -bounded);
    const float large = 1.0f - exponential(p);
    return t <= 0.927734375f || x != x ? small : x < 0.0f ? -large : large;
}

HIPVIT_DEVICE float fn_atan(float x) {
    const float t = absolute(x), v = t > 1.0f ? quotient(1.0f, t) : t, s = v * v;
    float r = 2.78569828e-3f;
    r = multiply_add(r, s, -1.58660226e-2f);
    r = multiply_add(r, s, 4.24722321e-2f);
    r = multiply_add(r, s, -7.49753043e-2f);
    r = multiply_add(r, s, 1.06448799e-1f);
    r = multiply_add(r, s, -1.42070308e-1f);
    r = multiply_add(r, s, 1.99934542e-1f);
    r = multiply_add(r, s, -3.33331466e-1f);
    r = multiply_add(r * s, v, v);
    const float y = t > 1.0f ? 1.57079633f - r : r;
    return x < 0.0f ? -y : x != x ? x : y;
}

// An angle as a quadrant and the rest, at most π/4 away from its middle.
struct Angle {
    u32 quadrant;
    float rest;
};

// π/2 in three parts for usual angles; for large ones the bits of 2/π that matter, in integers (Payne and Hanek).
HIPVIT_DEVICE Angle reduced_angle(float x) {
    if (absolute(x) < 71476.0f) {
        const float quarter = nearest(x * 0.636619747f);
        float rest = multiply_add(quarter, -1.57079601f, x);
        rest = multiply_add(quarter, -3.13916473e-7f, rest);
        rest = multiply_add(quarter, -5.39030253e-15f, rest);
        return {u32(int(quarter)), rest};
    }
    const u32 bits = bits_of(x), exponent = bits >> 23 & 0xff;
    if (exponent == 0xff) return {0, x - x};
    const u32 mantissa = bits << 8 | 0x80000000, shift = exponent - 126;
    const u32 inverse[] = {0, 0x28be60db, 0x9391054a, 0x7f09d5f4, 0x7d4d3770, 0x36d8a566, 0x4f10e410, 0x7f9458ea};
    u32 word[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        // Without an index that depends on the thread: the table stays in registers.
        word[i] = 0;
#pragma unroll
        for (u32 first = 0; first + i < 8; ++first)
            if (first == shift / 32) word[i] = inverse[first + i];
    }
    const u32 left = shift % 32;
    if (left) {
#pragma unroll
        for (u32 i = 0; i < 3; ++i) word[i] = word[i] << left | word[i + 1] >> (32 - left);
    }
    u64 product = u64(mantissa) * word[2];
    product = u64(mantissa) * word[1] + (product >> 32);
    product += u64(mantissa * word[0]) << 32;
    // The quadrant is in the upper two bits. Round it to the nearest one.
    const u32 quadrant = u32((product + (u64(1) << 61)) >> 62);
    const u64 fraction = product << 2;
    const bool above = fraction >> 63;
    const float distance = float(above ? ~fraction + 1 : fraction) * (1.57079633f * 5.42101086e-20f); // 2^−64
    const float rest = above ? -distance : distance;
    return bits >> 31 ? Angle{0u - quadrant, -rest} : Angle{quadrant, rest};
}

HIPVIT_DEVICE float sine_of(const Angle &angle) {
    const float x = angle.rest, square = x * x;
    float sine = 2.86567956e-6f, cosine = 2.44677067e-5f;
    sine = multiply_add(sine, square, -1.98559923e-4f);
    sine = multiply_add(sine, square, 8.33338592e-3f);
    sine = multiply_add(sine, square, -1.66666672e-1f);
    sine = multiply_add(sine, x * square, x);
    cosine = multiply_add(cosine, square, -1.38877297e-3f);
    cosine = multiply_add(cosine, square, 4.16666567e-2f);
    cosine = multiply_add(cosine, square, -0.5f);
    cosine = multiply_add(cosine, square, 1.0f);
    const float y = angle.quadrant & 1 ? cosine : sine;
    return angle.quadrant & 2 ? -y : y;
}

HIPVIT_DEVICE float fn_sin(float x) { return sine_of(reduced_angle(x)); }
HIPVIT_DEVICE float fn_cos(float x) {
    const Angle angle = reduced_angle(x);
    return sine_of({angle.quadrant + 1, angle.rest});
}

// The quotient is within one of the exact one. The remainder is exact up to quotients of 2^22.
HIPVIT_DEVICE float fn_remainder(float x, float y) {
    const float dividend = absolute(x), divisor = absolute(y);
    if (!(divisor < infinity())) return divisor == infinity() ? x + 0.0f * x : y;
    float rest = multiply_add(-fn_trunc(quotient(dividend, divisor)), divisor, dividend);
    if (rest < 0.0f) rest += divisor;
    if (rest >= divisor) rest -= divisor;
    return x < 0.0f ? -rest : rest;
}

// e^(y · ln |x|), with the sign of an odd power.
HIPVIT_DEVICE float fn_pow(float x, float y) {
    const bool whole = fn_trunc(y) == y, odd = whole && fn_trunc(0.5f * y) != 0.5f * y;
    if (y == 0.0f || x == 1.0f) return 1.0f;
    if (x < 0.0f && !whole) return float_of(0x7fc00000);
    const float size = fn_exp(y * fn_log(absolute(x)));
    return odd && bits_of(x) >> 31 ? -size : size;
}

} // namespace hipvit
