// adamw: a step of AdamW, of f32 weights and moments, with a gradient in T or f32.
//
// Shapes: all [elements]; rates f32 [3], factor f32 [1]. Results may alias the operands that they replace.
// Alignment: any; f32 elements of consecutive threads are consecutive.
// Arithmetic: f32.
// Geometry: optimizer.h.
#include "adamw.h"
#include "optimizer.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void adamw(const AdamWArgs &a) {
    const float rate = a.rates[0] * a.rate_factor, kept = 1.0f - rate * a.weight_decay;
    const float step = rate / a.rates[1], root = square_root(a.rates[2]), factor = a.factor[0];
    for_each_element(a.elements, [&](u64 at) {
        const float g = gradient_at<T>(a.gradient, a.f32_gradient, at) * factor;
        float weight = a.weight[at], m = a.first[at], v = a.second[at];
        if (factor == factor) {
            m += (g - m) * (1.0f - a.beta1);
            v = v * a.beta2 + g * g * (1.0f - a.beta2);
            weight = weight * kept - step * m / (square_root(v) / root + a.epsilon);
        }
        a.new_weight[at] = weight;
        a.new_first[at] = m;
        a.new_second[at] = v;
        if (a.rounded) ((T *)a.rounded)[at] = from_float<T>(weight);
    });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_##T(AdamWArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, adamw)
