// adamw_int8: a step of AdamW, of f32 weights and moments in 8 bits, with a gradient in T or f32.
//
// Shapes: weights and gradients [elements]; moments u32 [blocks, INT8_MOMENTS_WORDS]; rates f32 [4], factor f32 [1]. Results may alias the
//   operands that they replace.
// Alignment: of the words; elements of consecutive threads are consecutive.
// Arithmetic: f32. Moments are rounded at random (compact_moments.hpp); the weight is updated by those before.
// Geometry: a block of INT8_MOMENTS threads per block of moments, a thread per element.
#include "adamw_int8.h"
#include "compact_moments.hpp"
#include "optimizer.hpp"
#include "wave.hpp"

using namespace hipvit;

constexpr float FIRST_LEVELS = 126.0f, SECOND_LEVELS = 253.0f;

HIPVIT_DEVICE float power2(float x) { return x * x; }
HIPVIT_DEVICE float power4(float x) { return x * x * (x * x); }

// One of the two levels beside a share, the upper one with the probability that keeps the mean. `low` and `high` are their shares.
HIPVIT_DEVICE u32 rounded_level(float share, float lower, float low, float high, float noise) {
    return u32(lower) + (noise < (share - low) / (high - low) ? 1u : 0u);
}

// The level of a code without its sign is never all ones in its lower 7 bits, so that no word is NaN.
HIPVIT_DEVICE float first_moment(u32 code, float scale) {
    const float moment = scale * power2(float(code & 0x7fu) / FIRST_LEVELS);
    return code & 0x80u ? -moment : moment;
}
HIPVIT_DEVICE u32 first_code(float moment, float scale, float noise) {
    const u32 sign = bits_of(moment) >> 31 << 7;
    if (!(scale > 0.0f)) return sign;
    const float share = absolute(moment) / scale;
    const float lower = smaller(float(u32(square_root(share) * FIRST_LEVELS)), FIRST_LEVELS - 1.0f);
    const float low = power2(lower / FIRST_LEVELS), high = power2((lower + 1.0f) / FIRST_LEVELS);
    return sign | rounded_level(share, lower, low, high, noise);
}

HIPVIT_DEVICE float second_moment(u32 code, float scale) {
    const u32 level = code - (code >= 127u ? 1u : 0u);
    return scale * power4(float(level) / SECOND_LEVELS);
}
HIPVIT_DEVICE u32 second_code(float moment, float scale, float noise) {
    if (!(scale > 0.0f)) return 0;
    const float share = moment / scale;
    const float lower = smaller(float(u32(square_root(square_root(share)) * SECOND_LEVELS)), SECOND_LEVELS - 1.0f);
    const float low = power4(lower / SECOND_LEVELS), high = power4((lower + 1.0f) / SECOND_LEVELS);
    u32 level = rounded_level(share, lower, low, high, noise);
    if (level == 0 && moment > 0.0f) level = 1;
    return level + (level >= 127u ? 1u : 0u);
}

template <class T> HIPVIT_DEVICE void adamw_int8(const AdamWInt8Args &a) {
    HIPVIT_LDS float scratch[INT8_MOMENTS / WAVE];
    const RowGroup<INT8_MOMENTS> block{true, scratch};
    const CompactStep step(a.rates, a.factor[0], a.rate_factor, a.weight_decay);
    const u64 at = u64(block_index()) * INT8_MOMENTS + thread_index();
    const bool exists = at < a.elements;
    const u32 *const words = a.moments + u64(block_index()) * INT8_MOMENTS_WORDS;
    const u8 *const codes = (const u8 *)(words + 2);
    float scale1 = float_of(words[0]), scale2 = float_of(words[1]);
    u32 code1 = codes[thread_index()], code2 = codes[INT8_MOMENTS + thread_index()];
    float weight = exists ? a.weight[at] : 0.0f;
    if (step.factor == step.factor) {
        float m = first_moment(code1, scale1), v = second_moment(code2, scale2);
        const float g = exists ? gradient_at<T>(a.gradient, a.f32_gradient, at) * step.factor : 0.0f;
        step.update(g, a.beta1, a.beta2, a.epsilon, weight, m, v);
        if (!exists) m = v = 0.0f;
        scale1 = block.reduce<Max>(absolute(m));
        scale2 = block.reduce<Max>(v);
        const u32 noise = step.noise(u32(at));
        code1 = first_code(m, scale1, float(noise & 0xffffu) / 65536.0f);
        code2 = second_code(v, scale2, float(noise >> 16) / 65536.0f);
    }
    // The results may be in the memory of the operands, which other threads still read.
    barrier();
    u32 *const new_words = a.new_moments + u64(block_index()) * INT8_MOMENTS_WORDS;
    u8 *const new_codes = (u8 *)(new_words + 2);
    if (thread_index() == 0) {
        new_words[0] = bits_of(scale1);
        new_words[1] = bits_of(scale2);
    }
    new_codes[thread_index()] = u8(code1);
    new_codes[INT8_MOMENTS + thread_index()] = u8(code2);
    if (!exists) return;
    a.new_weight[at] = weight;
    if (a.rounded) ((T *)a.rounded)[at] = from_float<T>(weight);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(INT8_MOMENTS) name##_##T(AdamWInt8Args a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, adamw_int8)
