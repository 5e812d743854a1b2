// Softmax of a row, and the class of a teacher, by a block of LOSS_THREADS.
#pragma once
#include "loss.hpp"

namespace hipvit {

// Softmax of a row of logits times `inverse`.
template <class T> struct RowSoftmax {
    const T *logits;
    float inverse, most, total;

    HIPVIT_DEVICE RowSoftmax(const RowGroup<LOSS_THREADS> &group, const T *logits, u32 classes, float inverse)
        : logits(logits), inverse(inverse) {
        most = -infinity();
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) most = larger(most, to_float(logits[i]) * inverse);
        most = group.template reduce<Max>(most);
        total = 0.0f;
        for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) total += exponential(shifted(i));
        total = group.template reduce<Sum>(total);
    }
    HIPVIT_DEVICE float shifted(u32 i) const { return to_float(logits[i]) * inverse - most; }
    // The logarithm of element i.
    HIPVIT_DEVICE float logarithm(u32 i) const { return shifted(i) - LN_2 * fast_log2(total); }
    HIPVIT_DEVICE float at(u32 i) const { return exponential(shifted(i)) / total; }
};

// The index of the largest of a row, the first of equal ones. Rows have fewer than 2^24 elements.
HIPVIT_DEVICE u32 largest_index(const RowGroup<LOSS_THREADS> &group, const float *values, u32 classes) {
    float most = -infinity();
    for (u32 i = group.rank(); i < classes; i += LOSS_THREADS) most = larger(most, values[i]);
    most = group.template reduce<Max>(most);
    float first = -infinity();
    for (u32 i = group.rank(); i < classes; i += LOSS_THREADS)
        if (values[i] == most) first = larger(first, -float(i));
    first = group.template reduce<Max>(first);
    // No element is equal to the largest if one is NaN.
    return first <= 0.0f && -first < float(classes) ? u32(-first) : 0;
}

} // namespace hipvit
