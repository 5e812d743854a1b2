// Losses of a row of logits and targets and their derivatives, by a block of LOSS_THREADS. The accumulator is f32, after the row's maximum
// is subtracted.
#pragma once
#include "loss.h"
#include "wave.hpp"

namespace hipvit {

// What ln(1 + e^x) is more than the larger of x and 0: the logarithm of a number from 1 to 2.
HIPVIT_DEVICE float softplus_rest(float x) { return LN_2 * fast_log2(1.0f + exponential(-absolute(x))); }

// ln(1 + e^x)
HIPVIT_DEVICE float softplus(float x) { return larger(x, 0.0f) + softplus_rest(x); }

// Loss of a row, in every thread of the block.
template <class T>
HIPVIT_DEVICE float loss_of_row(const RowGroup<LOSS_THREADS> &group, u32 kind, const T *logits, const float *targets, u32 classes) {
    float sum = 0.0f;
    if (kind == u32(LossFunction::CrossEntropy)) {
        float most = -infinity();
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) most = larger(most, to_float(logits[i]));
        most = group.template reduce<Max>(most);
        float total = 0.0f;
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) total += exponential(to_float(logits[i]) - most);
        total = LN_2 * fast_log2(group.template reduce<Sum>(total));
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS)
            sum += targets[i] * (total - (to_float(logits[i]) - most));
    } else {
        const bool is_binary = kind == u32(LossFunction::BinaryCrossEntropy);
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) {
            const float z = to_float(logits[i]), difference = z - targets[i];
            sum += is_binary ? softplus(z) - z * targets[i] : difference * difference;
        }
    }
    sum = group.template reduce<Sum>(sum);
    return kind == u32(LossFunction::CrossEntropy) ? sum : sum / float(classes);
}

// Writes the derivative of a row's loss with respect to its logits, times `gradient`.
template <class T>
HIPVIT_DEVICE void loss_backward_of_row(const RowGroup<LOSS_THREADS> &group, u32 kind, const T *logits, const float *targets, u32 classes,
                                        float gradient, T *out) {
    const float mean = gradient / float(classes);
    if (kind == u32(LossFunction::CrossEntropy)) {
        float most = -infinity();
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) most = larger(most, to_float(logits[i]));
        most = group.template reduce<Max>(most);
        float total = 0.0f, of_targets = 0.0f;
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) {
            total += exponential(to_float(logits[i]) - most);
            of_targets += targets[i];
        }
        total = group.template reduce<Sum>(total);
        const float factor = group.template reduce<Sum>(of_targets) / total;
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) {
            const float d = exponential(to_float(logits[i]) - most) * factor - targets[i];
            out[i] = from_float<T>(d * gradient);
        }
    } else {
        const bool is_binary = kind == u32(LossFunction::BinaryCrossEntropy);
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) {
            const float z = to_float(logits[i]);
            const float d = is_binary ? 1.0f / (1.0f + exponential(-z)) - targets[i] : 2.0f * (z - targets[i]);
            out[i] = from_float<T>(d * mean);
        }
    }
}

} // namespace hipvit
