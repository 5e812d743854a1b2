// lamb_part: the new moments, and the sums of the squares of each block's weights and updates.
// lamb_ratio: the trust ratio of the tensor, from these sums.
// lamb: the new weight.
//
// Shapes: all [elements]; rates f32 [3], factor, ratio f32 [1], sums f32 [2, blocks]. Results may alias the operands that they replace.
// Alignment: any; f32 elements of consecutive threads are consecutive.
// Arithmetic: f32. A thread, a wave and a block add in a fixed order, so that equal steps have equal bits.
// Geometry: optimizer.h. lamb_ratio: one block of OPTIMIZER_THREADS.
#include "lamb.h"
#include "optimizer.hpp"
#include "wave.hpp"

using namespace hipvit;

// The update for a learning rate and a trust ratio of 1.
HIPVIT_DEVICE float lamb_update(const float *rates, float epsilon, float weight_decay, float weight, float m, float v) {
    return m / rates[1] / (square_root(v) / square_root(rates[2]) + epsilon) + weight_decay * weight;
}

template <class T> HIPVIT_DEVICE void lamb_part(const LambPartArgs &a) {
    HIPVIT_LDS static float scratch[OPTIMIZER_THREADS / WAVE];
    const RowGroup<OPTIMIZER_THREADS> group{true, scratch};
    const float factor = a.factor[0];
    float of_weights = 0.0f, of_updates = 0.0f;
    for_each_element(a.elements, [&](u64 at) {
        const float g = gradient_at<T>(a.gradient, a.f32_gradient, at) * factor, weight = a.weight[at];
        float m = a.first[at], v = a.second[at];
        if (factor == factor) {
            m += (g - m) * (1.0f - a.beta1);
            v = v * a.beta2 + g * g * (1.0f - a.beta2);
        }
        const float update = lamb_update(a.rates, a.epsilon, a.weight_decay, weight, m, v);
        of_weights += weight * weight;
        of_updates += update * update;
        a.new_first[at] = m;
        a.new_second[at] = v;
    });
    of_weights = group.template reduce<Sum>(of_weights);
    of_updates = group.template reduce<Sum>(of_updates);
    if (thread_index() != 0) return;
    const u32 parts = (a.elements - 1) / (OPTIMIZER_ELEMENTS * OPTIMIZER_THREADS) + 1;
    a.sums[block_index()] = of_weights;
    a.sums[u64(parts) + block_index()] = of_updates;
}

template <class T> HIPVIT_DEVICE void lamb_ratio(const LambRatioArgs &a) {
    HIPVIT_LDS static float scratch[OPTIMIZER_THREADS / WAVE];
    const RowGroup<OPTIMIZER_THREADS> group{true, scratch};
    float of_weights = 0.0f, of_updates = 0.0f;
    for (u32 i = thread_index(); i < a.parts; i += OPTIMIZER_THREADS) {
        of_weights += a.sums[i];
        of_updates += a.sums[u64(a.parts) + i];
    }
    of_weights = group.template reduce<Sum>(of_weights);
    of_updates = group.template reduce<Sum>(of_updates);
    const bool has_norms = of_weights > 0.0f && of_updates > 0.0f;
    if (thread_index() == 0) a.ratio[0] = has_norms ? square_root(of_weights) / square_root(of_updates) : 1.0f;
}

template <class T> HIPVIT_DEVICE void lamb(const LambArgs &a) {
    const float factor = a.factor[0], ratio = a.ratio ? a.ratio[0] : 1.0f;
    const float step = a.rates[0] * a.rate_factor * ratio;
    for_each_element(a.elements, [&](u64 at) {
        float weight = a.weight[at];
        if (factor == factor)
            weight -= step * lamb_update(a.rates, a.epsilon, a.weight_decay, weight, a.first[at], a.second[at]);
        a.new_weight[at] = weight;
        if (a.rounded) ((T *)a.rounded)[at] = from_float<T>(weight);
    });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_##T(LambArgs a) { name<T>(a); }                                            \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_part_##T(LambPartArgs a) { name##_part<T>(a); }                            \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_ratio_##T(LambRatioArgs a) { name##_ratio<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, lamb)
