// token_loss: the cross-entropy of each token's logits and label, and whether no logit is larger than that of the label.
//
// Shapes: logits T [tokens, classes], row-major; labels i32, losses and hits f32 [tokens].
// Alignment: any; a row of logits is read twice, by consecutive threads.
// Accumulator: f32, after the row's maximum is subtracted.
// Geometry: a token per block of TOKEN_LOSS_THREADS.
#include "token_loss.h"
#include "wave.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void token_loss(const TokenLossArgs &a) {
    HIPVIT_LDS static float scratch[TOKEN_LOSS_THREADS / WAVE];
    const RowGroup<TOKEN_LOSS_THREADS> group{true, scratch};
    const u32 token = group.row();
    const T *logits = (const T *)a.logits + u64(token) * a.classes;
    const u32 label = u32(a.labels[token]);
    // A negative label is a large number.
    if (label >= a.classes) { // the whole block
        if (group.rank() == 0) {
            a.losses[token] = 0.0f;
            a.hits[token] = 0.0f;
        }
        return;
    }
    float most = -infinity();
    for (u32 i = group.rank(); i < a.classes; i += TOKEN_LOSS_THREADS) most = larger(most, to_float(logits[i]));
    most = group.template reduce<Max>(most);
    float total = 0.0f;
    for (u32 i = group.rank(); i < a.classes; i += TOKEN_LOSS_THREADS) total += exponential(to_float(logits[i]) - most);
    total = group.template reduce<Sum>(total);
    if (group.rank() != 0) return;
    const float own = to_float(logits[label]);
    a.losses[token] = LN_2 * fast_log2(total) - (own - most);
    a.hits[token] = own >= most ? 1.0f : 0.0f;
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(TOKEN_LOSS_THREADS) name##_##T(TokenLossArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, token_loss)
