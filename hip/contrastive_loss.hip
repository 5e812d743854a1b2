// contrastive_loss: the loss of each pair of an image and a text, by InfoNCE or by SigLIP's sigmoid.
//
// Shapes: similarity T [pairs, pairs], row-major, an image per row; log_scale, bias f32 [1]; out f32 [pairs].
// Alignment: any. Loads of a column are not coalesced, which is little beside the towers of a model.
// Accumulator: f32, after the maximum is subtracted.
// Geometry: a pair per block of CONTRASTIVE_THREADS.
#include "contrastive.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void contrastive_loss(const ContrastiveLossArgs &a) {
    HIPVIT_LDS static float scratch[CONTRASTIVE_THREADS / WAVE];
    const PairGroup group{true, scratch};
    const PairLogits<T> logits(a.similarity, a.log_scale, a.bias, a.pairs);
    const u32 pair = group.row();
    float loss = 0.0f;
    if (a.bias) {
        for (u32 text = group.rank(); text < a.pairs; text += CONTRASTIVE_THREADS) {
            const float logit = logits.at(pair, text);
            loss += softplus(text == pair ? -logit : logit);
        }
        loss = group.template reduce<Sum>(loss);
    } else {
        loss = 0.5f * (row_sum(group, logits, pair) + column_sum(group, logits, pair)) - logits.at(pair, pair);
    }
    if (group.rank() == 0) a.out[pair] = loss;
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(CONTRASTIVE_THREADS) name##_##T(ContrastiveLossArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, contrastive_loss)
