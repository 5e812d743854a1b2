// adamw_bf16, adamw_int8: a step of AdamW, of f32 weights and moments packed into words, with a gradient in T or f32.
// crates/graph/src/compact_moments.rs describes the words.
//
// Shapes: weights and gradients [elements]; moments u32 [elements] in bf16, u32 [blocks, INT8_MOMENTS_WORDS] in 8 bits; rates f32 [4], factor
//   f32 [1]. Results may alias the operands that they replace.
// Alignment: of the words; elements of consecutive threads are consecutive.
// Arithmetic: f32. Moments are rounded at random; the weight is updated by those before.
// Geometry: adamw_bf16: optimizer.h. adamw_int8: a block of INT8_MOMENTS threads per block of moments, a thread per element.
#include "compact_adamw.h"
#include "optimizer.hpp"
#include "wave.hpp"

using namespace hipvit;

// lowbias32 of https://nullprogram.com/blog/2018/07/31/
HIPVIT_DEVICE u32 mixed(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// Scalars of a step.
struct CompactStep {
    float kept, step, root, factor;
    u32 key;

    // `rates`: learning rate, 1 − beta1^t, 1 − beta2^t, number of the update.
    HIPVIT_DEVICE CompactStep(const float *rates, float factor, float rate_factor, float weight_decay)
        : factor(factor), key(mixed(bits_of(rates[3]))) {
        const float rate = rates[0] * rate_factor;
        kept = 1.0f - rate * weight_decay;
        step = rate / rates[1];
        root = square_root(rates[2]);
    }

    // Updates a weight and its moments by the gradient `g`.
    HIPVIT_DEVICE void update(float g, float beta1, float beta2, float epsilon, float &weight, float &m, float &v) const {
        m += (g - m) * (1.0f - beta1);
        v = v * beta2 + g * g * (1.0f - beta2);
        weight = weight * kept - step * m / (square_root(v) / root + epsilon);
    }

    // Two random numbers of 16 bits for an element.
    HIPVIT_DEVICE u32 noise(u32 element) const { return mixed(element ^ key); }
};

template <class T> HIPVIT_DEVICE void adamw_bf16(const CompactAdamWArgs &a) {
    const CompactStep step(a.rates, a.factor[0], a.rate_factor, a.weight_decay);
    for_each_element(a.elements, [&](u64 at) {
        const float g = gradient_at<T>(a.gradient, a.f32_gradient, at) * step.factor;
        float weight = a.weight[at];
        u32 word = a.moments[at];
        if (step.factor == step.factor) {
            float m = float_of(word & 0xffff0000u), v = float_of(word << 16);
            step.update(g, a.beta1, a.beta2, a.epsilon, weight, m, v);
            const u32 noise = step.noise(u32(at));
            const u32 first = (bits_of(m) + (noise & 0xffffu)) & 0xffff0000u;
            word = first | (bits_of(v) + (noise >> 16)) >> 16;
        }
        a.new_weight[at] = weight;
        a.new_moments[at] = word;
        if (a.rounded) ((T *)a.rounded)[at] = from_float<T>(weight);
    });
}

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

template <class T> HIPVIT_DEVICE void adamw_int8(const CompactAdamWArgs &a) {
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
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_bf16_##T(CompactAdamWArgs a) { name##_bf16<T>(a); }                        \
    HIPVIT_KERNEL(INT8_MOMENTS) name##_int8_##T(CompactAdamWArgs a) { name##_int8<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, adamw)
