// token_loss_backward: the derivative of each token's cross-entropy with respect to its logits, times the token's gradient.
//
// Shapes: logits, out T [tokens, classes], row-major; labels i32, gradient f32 [tokens].
// Alignment: any; a row of logits is read three times, by consecutive threads.
// Accumulator: f32, after the row's maximum is subtracted.
// Geometry: a token per block of TOKEN_LOSS_THREADS.
#include "token_loss_backward.h"
#include "token_loss.h"
#include "wave.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void token_loss_backward(const TokenLossBackwardArgs &a) {
    HIPVIT_LDS static float scratch[TOKEN_LOSS_THREADS / WAVE];
    const RowGroup<TOKEN_LOSS_THREADS> group{true, scratch};
    const u32 token = group.row();
    const T *logits = (const T *)a.logits + u64(token) * a.classes;
    T *out = (T *)a.out + u64(token) * a.classes;
    const u32 label = u32(a.labels[token]);
    // A negative label is a large number.
    if (label >= a.classes) { // the whole block
        for (u32 i = group.rank(); i < a.classes; i += TOKEN_LOSS_THREADS) out[i] = from_float<T>(0.0f);
        return;
    }
    float most = -infinity();
    for (u32 i = group.rank(); i < a.classes; i += TOKEN_LOSS_THREADS) most = larger(most, to_float(logits[i]));
    most = group.template reduce<Max>(most);
    float total = 0.0f;
    for (u32 i = group.rank(); i < a.classes; i += TOKEN_LOSS_THREADS) total += exponential(to_float(logits[i]) - most);
    const float factor = 1.0f / group.template reduce<Sum>(total), gradient = a.gradient[token];
    for (u32 i = group.rank(); i < a.classes; i += TOKEN_LOSS_THREADS) {
        const float d = exponential(to_float(logits[i]) - most) * factor - (i == label ? 1.0f : 0.0f);
        out[i] = from_float<T>(d * gradient);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(TOKEN_LOSS_THREADS) name##_##T(TokenLossBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, token_loss_backward)
