// adamw: a step of AdamW, of f32 weights and moments, with a gradient in T.
//
// Shapes: all [elements]; rates f32 [3], factor f32 [1]. Results may alias the operands that they replace.
// Alignment: any; f32 elements of consecutive threads are consecutive.
// Arithmetic: f32.
// Geometry: blocks of ADAMW_THREADS, which update ADAMW_ELEMENTS · ADAMW_THREADS consecutive elements.
#include "adamw.h"
#include "device.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void adamw(const AdamWArgs &a) {
    const float rate = a.rates[0] * a.rate_factor, kept = 1.0f - rate * a.weight_decay;
    const float step = rate / a.rates[1], root = square_root(a.rates[2]), factor = a.factor[0];
    const u64 start = u64(block_index()) * (ADAMW_ELEMENTS * ADAMW_THREADS) + thread_index();
#pragma unroll
    for (u32 i = 0; i < ADAMW_ELEMENTS; ++i) {
        const u64 at = start + u64(i) * ADAMW_THREADS;
        if (at >= a.elements) return;
        const float g = to_float(((const T *)a.gradient)[at]) * factor;
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
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ADAMW_THREADS) name##_##T(AdamWArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, adamw)
