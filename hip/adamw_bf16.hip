// adamw_bf16: a step of AdamW, of f32 weights and moments in bf16, with a gradient in T or f32.
//
// Shapes: all [elements]; rates f32 [4], factor f32 [1]. Results may alias the operands that they replace.
// Alignment: any; words of consecutive threads are consecutive.
// Arithmetic: f32. Moments are rounded at random (compact_moments.hpp); the weight is updated by those before.
// Geometry: optimizer.h.
#include "adamw_bf16.h"
#include "compact_moments.hpp"
#include "optimizer.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void adamw_bf16(const AdamWBf16Args &a) {
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

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_##T(AdamWBf16Args a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, adamw_bf16)
