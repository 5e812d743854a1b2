// lion: a step of Lion, of f32 weights and momentum, with a gradient in T or f32.
//
// Shapes: all [elements]; rate and factor f32 [1]. Results may alias the operands that they replace.
// Alignment: any; f32 elements of consecutive threads are consecutive.
// Arithmetic: f32.
// Geometry: optimizer.h.
#include "lion.h"
#include "optimizer.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void lion(const LionArgs &a) {
    const float rate = a.rate[0] * a.rate_factor, factor = a.factor[0];
    for_each_element(a.elements, [&](u64 at) {
        float weight = a.weight[at], momentum = a.momentum[at];
        if (factor == factor) {
            const float g = gradient_at<T>(a.gradient, a.f32_gradient, at) * factor;
            const float update = a.beta1 * momentum + (1.0f - a.beta1) * g;
            const float sign = update > 0.0f ? 1.0f : update < 0.0f ? -1.0f : 0.0f;
            weight = weight * (1.0f - rate * a.weight_decay) - rate * sign;
            momentum = a.beta2 * momentum + (1.0f - a.beta2) * g;
        }
        a.new_weight[at] = weight;
        a.new_momentum[at] = momentum;
        if (a.rounded) ((T *)a.rounded)[at] = from_float<T>(weight);
    });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_##T(LionArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, lion)
