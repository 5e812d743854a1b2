// contrastive_loss_backward_logs: ln Σ e^logit of each row and column of the logits of pairs.
// contrastive_loss_backward: the derivatives of the losses with respect to the similarities, and sums of each row.
// contrastive_loss_backward_totals: the sums of these: the derivatives with respect to the scale and the bias.
//
// Shapes: similarity, out T [pairs, pairs], row-major, an image per row; log_scale, bias f32 [1]; gradient f32 [pairs]; logs, sums f32
// [2, pairs].
// Alignment: any. Loads of a column are not coalesced, which is little beside the towers of a model.
// Accumulator: f32. A thread, a wave and a block add in a fixed order.
// Geometry: blocks of CONTRASTIVE_THREADS; a row, or a row and a column, per block. contrastive_loss_backward_totals: one block.
#include "contrastive_loss_backward.h"
#include "contrastive.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void contrastive_loss_backward_logs(const ContrastiveLogsArgs &a) {
    HIPVIT_LDS static float scratch[CONTRASTIVE_THREADS / WAVE];
    const PairGroup group{true, scratch};
    const PairLogits<T> logits(a.similarity, a.log_scale, nullptr, a.pairs);
    const u32 pair = group.row();
    const float of_row = row_sum(group, logits, pair), of_column = column_sum(group, logits, pair);
    if (group.rank() != 0) return;
    a.out[pair] = of_row;
    a.out[u64(a.pairs) + pair] = of_column;
}

template <class T> HIPVIT_DEVICE void contrastive_loss_backward(const ContrastiveLossBackwardArgs &a) {
    HIPVIT_LDS static float scratch[CONTRASTIVE_THREADS / WAVE];
    const PairGroup group{true, scratch};
    const PairLogits<T> logits(a.similarity, a.log_scale, a.bias, a.pairs);
    const u32 image = group.row();
    const float gradient = a.gradient[image], of_row = a.logs ? a.logs[image] : 0.0f;
    float of_scale = 0.0f, of_bias = 0.0f;
    for (u32 text = group.rank(); text < a.pairs; text += CONTRASTIVE_THREADS) {
        const float z = logits.at(image, text);
        float d;
        if (a.bias) {
            const float sign = text == image ? -1.0f : 1.0f;
            d = sign * gradient / (1.0f + exponential(-sign * z));
        } else {
            const float column = exponential(z - a.logs[u64(a.pairs) + text]) * a.gradient[text];
            d = 0.5f * (exponential(z - of_row) * gradient + column) - (text == image ? gradient : 0.0f);
        }
        of_scale += d * logits.scaled(image, text);
        of_bias += d;
        ((T *)a.out)[u64(image) * a.pairs + text] = from_float<T>(logits.scale * d);
    }
    of_scale = group.template reduce<Sum>(of_scale);
    of_bias = group.template reduce<Sum>(of_bias);
    if (group.rank() != 0) return;
    a.sums[image] = of_scale;
    a.sums[u64(a.pairs) + image] = of_bias;
}

template <class T> HIPVIT_DEVICE void contrastive_loss_backward_totals(const ContrastiveTotalsArgs &a) {
    HIPVIT_LDS static float scratch[CONTRASTIVE_THREADS / WAVE];
    const PairGroup group{true, scratch};
    float of_scale = 0.0f, of_bias = 0.0f;
    for (u32 i = group.rank(); i < a.pairs; i += CONTRASTIVE_THREADS) {
        of_scale += a.sums[i];
        of_bias += a.sums[u64(a.pairs) + i];
    }
    of_scale = group.template reduce<Sum>(of_scale);
    of_bias = group.template reduce<Sum>(of_bias);
    if (group.rank() != 0) return;
    ((T *)a.log_scale)[0] = from_float<T>(of_scale);
    if (a.bias) ((T *)a.bias)[0] = from_float<T>(of_bias);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(CONTRASTIVE_THREADS) name##_##T(ContrastiveLossBackwardArgs a) { name<T>(a); }                       \
    HIPVIT_KERNEL(CONTRASTIVE_THREADS) name##_logs_##T(ContrastiveLogsArgs a) { name##_logs<T>(a); }                   \
    HIPVIT_KERNEL(CONTRASTIVE_THREADS) name##_totals_##T(ContrastiveTotalsArgs a) { name##_totals<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, contrastive_loss_backward)
