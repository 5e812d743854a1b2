// Rounding to 8-bit floating point, E4M3 or E5M2: to nearest, ties to even, saturated at ±448 or ±57344. The bits are those of OCP's
// encoding on every GPU. gfx942 reads them as FNUZ, in which they have half the value: its kernels double the scale of a product. On gfx942 −0 becomes 0,
// and NaN becomes 0x80, since 0x80 is NaN in FNUZ. src/float8.rs converts on the host.
//
//   v_cvt_pk_fp8_f32, v_cvt_pk_bf8_f32                          gfx942, of x/2; gfx950, gfx12
//   cvt.rn.satfinite.e4m3x2.f32, cvt.rn.satfinite.e5m2x2.f32    sm_89 and later
//   integer arithmetic                                          everything else
#pragma once
#include "vec128.hpp"

namespace hipvit {

constexpr float FLOAT8_LARGEST = 448.0f, E5M2_LARGEST = 57344.0f;
// Value of OCP's encoding relative to the GPU's: a product of the bits is multiplied by it.
#if defined(__gfx942__)
constexpr float FLOAT8_UNIT = 2.0f;
#else
constexpr float FLOAT8_UNIT = 1.0f;
#endif

#if defined(__gfx942__) || defined(__gfx950__) || defined(__GFX12__)

// NaN fails the comparison and stays NaN. Halving is exact where it matters.
HIPVIT_DEVICE float saturate_float8(float x, float largest = FLOAT8_LARGEST) {
    const float y = absolute(x) > largest ? __builtin_copysignf(largest, x) : x;
    return y / FLOAT8_UNIT;
}

// Packs four numbers into a word, the first in the lowest byte.
HIPVIT_DEVICE u32 to_float8(float a, float b, float c, float d) {
    const int low = __builtin_amdgcn_cvt_pk_fp8_f32(saturate_float8(a), saturate_float8(b), 0, false);
    return u32(__builtin_amdgcn_cvt_pk_fp8_f32(saturate_float8(c), saturate_float8(d), low, true));
}
HIPVIT_DEVICE u32 to_float8_e5m2(float a, float b, float c, float d) {
    const auto saturated = [](float x) { return saturate_float8(x, E5M2_LARGEST); };
    const int low = __builtin_amdgcn_cvt_pk_bf8_f32(saturated(a), saturated(b), 0, false);
    return u32(__builtin_amdgcn_cvt_pk_bf8_f32(saturated(c), saturated(d), low, true));
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890

HIPVIT_DEVICE u32 to_float8(float a, float b, float c, float d) {
    u16 low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return u32(low) | u32(high) << 16;
}
HIPVIT_DEVICE u32 to_float8_e5m2(float a, float b, float c, float d) {
    u16 low, high;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return u32(low) | u32(high) << 16;
}

#else

HIPVIT_DEVICE u32 to_float8(float x) {
    const u32 sign = bits_of(x) >> 24 & 0x80;
    const float t = smaller(absolute(x), FLOAT8_LARGEST);
    // Drops 20 bits of the mantissa. A carry of rounding goes into the exponent, whose bias is lower by 120.
    const u32 bits = bits_of(t), normal = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3);
    // Below the smallest normal number, 2^-6, the unit is 2^-9: the last bit of a sum with 2^14.
    const u32 subnormal = bits_of(t + 16384.0f) - bits_of(16384.0f);
    return sign | (x != x ? 0x7f : t < 0.015625f ? subnormal : normal);
}
HIPVIT_DEVICE u32 to_float8(float a, float b, float c, float d) {
    return to_float8(a) | to_float8(b) << 8 | to_float8(c) << 16 | to_float8(d) << 24;
}
// Drops 21 bits. Below the smallest normal number, 2^-14, the unit is 2^-16.
HIPVIT_DEVICE u32 to_float8_e5m2(float x) {
    const u32 sign = bits_of(x) >> 24 & 0x80;
    const float t = smaller(absolute(x), E5M2_LARGEST);
    const u32 bits = bits_of(t), normal = ((bits + 0xfffff + (bits >> 21 & 1)) >> 21) - (112 << 2);
    const u32 subnormal = bits_of(t + 128.0f) - bits_of(128.0f);
    return sign | (x != x ? 0x7f : t < 6.103515625e-5f ? subnormal : normal);
}
HIPVIT_DEVICE u32 to_float8_e5m2(float a, float b, float c, float d) {
    return to_float8_e5m2(a) | to_float8_e5m2(b) << 8 | to_float8_e5m2(c) << 16 | to_float8_e5m2(d) << 24;
}

#endif

// N bytes, 4 or 8: what the elements of a vec128 become.
template <u32 N> struct alignas(N) ByteVec {
    u32 word[N / 4];
};

// Stores the first `valid` of N bytes. `vector`: `to` is aligned to N bytes.
template <u32 N> HIPVIT_DEVICE void store_bytes(u8 *to, u32 valid, bool vector, const ByteVec<N> &bytes) {
    if (vector && valid >= N) {
        *reinterpret_cast<ByteVec<N> *>(to) = bytes;
    } else {
#pragma unroll
        for (u32 i = 0; i < N; ++i)
            if (i < valid) to[i] = u8(bytes.word[i / 4] >> 8 * (i % 4));
    }
}

// Stores the first `valid` of N numbers times `factor` as E4M3.
template <u32 N>
HIPVIT_DEVICE void store_float8(u8 *to, u32 valid, bool vector, float factor, const float (&x)[N]) {
    ByteVec<N> bytes;
#pragma unroll
    for (u32 w = 0; w < N / 4; ++w)
        bytes.word[w] = to_float8(x[4 * w] * factor, x[4 * w + 1] * factor, x[4 * w + 2] * factor, x[4 * w + 3] * factor);
    store_bytes(to, valid, vector, bytes);
}

// Stores the first `valid` of VEC<T> numbers as the elements of `out` from `at` on: as T if `float8_factor` is 0, otherwise as E4M3 of
// the numbers times `float8_factor`.
template <class T>
HIPVIT_DEVICE void store_vec_as(void *out, u64 at, u32 valid, float float8_factor, const float (&x)[VEC<T>]) {
    if (float8_factor != 0.0f) {
        u8 *const to = (u8 *)out + at;
        store_float8(to, valid, aligned(to, VEC<T>), float8_factor, x);
    } else {
        T *const to = (T *)out + at;
        store_vec(to, valid, aligned(to, VEC128_BYTES), x);
    }
}

// Stores a whole vector, whose address is aligned, as store_vec_as does.
template <class T> HIPVIT_DEVICE void store_vec128_as(void *out, u64 at, float float8_factor, const float (&x)[VEC<T>]) {
    if (float8_factor != 0.0f) {
        store_float8((u8 *)out + at, VEC<T>, true, float8_factor, x);
    } else {
        store_vec((T *)out + at, VEC<T>, true, x);
    }
}

} // namespace hipvit
