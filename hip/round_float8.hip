// round_float8: out = x, rounded to E4M3 or E5M2 with one power of two as the scale of all elements, or x if the switch is 0. The numbers
//   are those of crates/graph/src/float8.rs, and exact in bf16 and f32. Four launches: round_float8_largest, round_float8_scale,
//   round_float8, round_float8_rate.
//
// Shapes: x, out T [elements]; out may alias x. on, scale, rate f32 [1]; largest, counts f32 [parts].
// Alignment: any, of whole elements; vec128 access where the addresses allow it.
// Accumulator: f32. The counts of a part are exact; those of all parts are added in a fixed order.
// Geometry: blocks of ROUND_FLOAT8_THREADS. round_float8_largest, round_float8: a part of ROUND_FLOAT8_PART elements per block. The others:
//   one block.
#include "round_float8.h"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

// The bits of a number's biased exponent, and those of its mantissa.
HIPVIT_DEVICE u32 exponent_of(float x) { return bits_of(x) >> 23 & 0xff; }
HIPVIT_DEVICE u32 mantissa_of(float x) { return bits_of(x) & 0x7fffff; }
// The power of two with this biased exponent, 1 to 254.
HIPVIT_DEVICE float power_of_two(u32 exponent) { return float_of(exponent << 23); }

// A format: bits of the mantissa, and biased exponents in f32 of its smallest normal number and of its largest number, which is 1.75 times
// a power of two.
struct Format {
    u32 mantissa_bits, smallest, largest;

    HIPVIT_DEVICE explicit Format(u32 code) {
        const bool is_e4m3 = Float8Code(code) == Float8Code::E4M3;
        mantissa_bits = is_e4m3 ? 3 : 2;
        smallest = is_e4m3 ? 127 - 6 : 127 - 14;
        largest = is_e4m3 ? 127 + 8 : 127 + 15;
    }
    // The scale of a tensor with this largest magnitude. NaN if that is infinite.
    HIPVIT_DEVICE float scale(float magnitude) const {
        if (!(magnitude < infinity())) return float_of(0x7fc00000);
        const u32 carry = mantissa_of(magnitude) > 0x600000 ? 1 : 0;
        const int exponent = int(exponent_of(magnitude) + carry + 127) - int(largest);
        return power_of_two(u32(exponent < 1 ? 1 : exponent > 253 ? 253 : exponent));
    }
    // The next number to x, which does not exceed the largest one. NaN stays NaN.
    HIPVIT_DEVICE float round(float x) const {
        const u32 own = exponent_of(x), exponent = (own < smallest ? smallest : own) - mantissa_bits;
        return nearest(x * power_of_two(254 - exponent)) * power_of_two(exponent);
    }
};

// Calls each(index, valid, element) for the vec128s of the thread in its block's part.
template <class T, class Each> HIPVIT_DEVICE void for_each_vec(const RoundFloat8Args &a, const Each &each) {
    const u64 start = u64(block_index()) * ROUND_FLOAT8_PART;
    const u32 left = u32(a.elements - start < ROUND_FLOAT8_PART ? a.elements - start : ROUND_FLOAT8_PART);
    const T *x = (const T *)a.x + start;
    for (u32 at = thread_index() * VEC<T>; at < left; at += ROUND_FLOAT8_THREADS * VEC<T>) {
        const u32 valid = left - at < VEC<T> ? left - at : VEC<T>;
        float value[VEC<T>];
        load_vec(x + at, valid, aligned(x, VEC128_BYTES), value);
        each(start + at, valid, value);
    }
}

template <class T> HIPVIT_DEVICE void round_float8_largest(const RoundFloat8Args &a) {
    HIPVIT_LDS static float scratch[ROUND_FLOAT8_THREADS / WAVE];
    const RowGroup<ROUND_FLOAT8_THREADS> group{true, scratch};
    float largest = 0.0f;
    for_each_vec<T>(a, [&](u64, u32, float(&value)[VEC<T>]) {
#pragma unroll
        // NaN becomes infinity, as larger would leave it out.
        for (u32 i = 0; i < VEC<T>; ++i) largest = larger(largest, value[i] != value[i] ? infinity() : absolute(value[i]));
    });
    largest = group.template reduce<Max>(largest);
    if (thread_index() == 0) a.largest[block_index()] = largest;
}

template <class T> HIPVIT_DEVICE void round_float8_scale(const RoundFloat8Args &a) {
    HIPVIT_LDS static float scratch[ROUND_FLOAT8_THREADS / WAVE];
    const RowGroup<ROUND_FLOAT8_THREADS> group{true, scratch};
    const u32 parts = (a.elements - 1) / ROUND_FLOAT8_PART + 1;
    float largest = 0.0f;
    for (u32 i = thread_index(); i < parts; i += ROUND_FLOAT8_THREADS) largest = larger(largest, a.largest[i]);
    largest = group.template reduce<Max>(largest);
    if (thread_index() == 0) a.scale[0] = Format(a.format).scale(largest);
}

template <class T> HIPVIT_DEVICE void round_float8(const RoundFloat8Args &a) {
    HIPVIT_LDS static float scratch[ROUND_FLOAT8_THREADS / WAVE];
    const RowGroup<ROUND_FLOAT8_THREADS> group{true, scratch};
    const bool is_rounded = a.on[0] != 0.0f;
    const Format format(a.format);
    const float scale = a.scale[0], inverse = power_of_two(254 - exponent_of(scale)) + (scale - scale); // keeps NaN
    float underflows = 0.0f;
    for_each_vec<T>(a, [&](u64 at, u32 valid, float(&value)[VEC<T>]) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float x = value[i];
            if (!is_rounded) continue;
            value[i] = product(format.round(x * inverse), scale);
            underflows += x != 0.0f && value[i] == 0.0f ? 1.0f : 0.0f;
        }
        T *to = (T *)a.out + at;
        store_vec(to, valid, aligned(to, VEC128_BYTES), value);
    });
    underflows = group.template reduce<Sum>(underflows);
    if (thread_index() == 0) a.counts[block_index()] = underflows;
}

template <class T> HIPVIT_DEVICE void round_float8_rate(const RoundFloat8Args &a) {
    HIPVIT_LDS static float scratch[ROUND_FLOAT8_THREADS / WAVE];
    const RowGroup<ROUND_FLOAT8_THREADS> group{true, scratch};
    const u32 parts = (a.elements - 1) / ROUND_FLOAT8_PART + 1;
    float underflows = 0.0f;
    for (u32 i = thread_index(); i < parts; i += ROUND_FLOAT8_THREADS) underflows += a.counts[i];
    underflows = group.template reduce<Sum>(underflows);
    if (thread_index() == 0) a.rate[0] = underflows / float(a.elements);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ROUND_FLOAT8_THREADS) name##_largest_##T(RoundFloat8Args a) { name##_largest<T>(a); }                \
    HIPVIT_KERNEL(ROUND_FLOAT8_THREADS) name##_scale_##T(RoundFloat8Args a) { name##_scale<T>(a); }                    \
    HIPVIT_KERNEL(ROUND_FLOAT8_THREADS) name##_##T(RoundFloat8Args a) { name<T>(a); }                                  \
    HIPVIT_KERNEL(ROUND_FLOAT8_THREADS) name##_rate_##T(RoundFloat8Args a) { name##_rate<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, round_float8)
