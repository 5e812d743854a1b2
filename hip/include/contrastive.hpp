// Logits of pairs of images and texts.
#pragma once
#include "contrastive_loss.h"
#include "loss.hpp"

namespace hipvit {

using PairGroup = RowGroup<CONTRASTIVE_THREADS>;

// The logits e^log_scale · similarity + bias.
template <class T> struct PairLogits {
    const T *similarity;
    u32 pairs;
    float scale, bias;

    HIPVIT_DEVICE PairLogits(const void *similarity, const float *log_scale, const float *bias, u32 pairs)
        : similarity((const T *)similarity), pairs(pairs), scale(exponential(log_scale[0])), bias(bias ? bias[0] : 0.0f) {}
    HIPVIT_DEVICE float scaled(u32 image, u32 text) const {
        return scale * to_float(similarity[u64(image) * pairs + text]);
    }
    HIPVIT_DEVICE float at(u32 image, u32 text) const { return scaled(image, text) + bias; }
};

// ln Σ e^logit(i) over the pairs, in every thread of the block.
template <class F> HIPVIT_DEVICE float log_sum(const PairGroup &group, u32 pairs, F logit) {
    float most = -infinity();
    for (u32 i = group.rank(); i < pairs; i += CONTRASTIVE_THREADS) most = larger(most, logit(i));
    most = group.template reduce<Max>(most);
    float total = 0.0f;
    for (u32 i = group.rank(); i < pairs; i += CONTRASTIVE_THREADS) total += exponential(logit(i) - most);
    return most + LN_2 * fast_log2(group.template reduce<Sum>(total));
}

// ln Σ e^logit of row `index`, and of the column.
template <class T> HIPVIT_DEVICE float row_sum(const PairGroup &group, const PairLogits<T> &logits, u32 index) {
    return log_sum(group, logits.pairs, [&](u32 text) { return logits.at(index, text); });
}
template <class T> HIPVIT_DEVICE float column_sum(const PairGroup &group, const PairLogits<T> &logits, u32 index) {
    return log_sum(group, logits.pairs, [&](u32 image) { return logits.at(image, index); });
}

} // namespace hipvit
