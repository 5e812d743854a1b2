// Steps of AdamW whose moments are packed into words. crates/graph/src/compact_moments.rs describes the words and their rounding.
#pragma once
#include "device.hpp"

namespace hipvit {

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

} // namespace hipvit
