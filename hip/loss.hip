// loss: the loss of each row of logits and targets.
//
// Shapes: logits T, targets f32 [rows, classes], row-major; out f32 [rows].
// Alignment: any; rows are few, so elements are loaded one by one.
// Accumulator: f32, after the row's maximum is subtracted.
// Geometry: a row per block of LOSS_THREADS.
#include "loss.h"
#include "wave.hpp"

using namespace hipvit;

constexpr float LN2 = 0.693147181f;

// ln(1 + e^x): x and the logarithm of a number from 1 to 2.
HIPVIT_DEVICE float softplus(float x) {
    return larger(x, 0.0f) + LN2 * fast_log2(1.0f + exponential(-absolute(x)));
}

template <class T> HIPVIT_DEVICE void loss(const LossArgs &a) {
    HIPVIT_LDS static float scratch[LOSS_THREADS / WAVE];
    const RowGroup<LOSS_THREADS> group{true, scratch};
    const u32 row = group.row();
    const T *logits = (const T *)a.logits + u64(row) * a.classes;
    const float *targets = a.targets + u64(row) * a.classes;
    float sum = 0.0f;
    if (a.kind == u32(LossFunction::CrossEntropy)) {
        float most = -infinity();
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS) most = larger(most, to_float(logits[i]));
        most = group.template reduce<Max>(most);
        float total = 0.0f;
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS) total += exponential(to_float(logits[i]) - most);
        total = LN2 * fast_log2(group.template reduce<Sum>(total));
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS)
            sum += targets[i] * (total - (to_float(logits[i]) - most));
    } else {
        const bool is_binary = a.kind == u32(LossFunction::BinaryCrossEntropy);
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS) {
            const float z = to_float(logits[i]), difference = z - targets[i];
            sum += is_binary ? softplus(z) - z * targets[i] : difference * difference;
        }
    }
    sum = group.template reduce<Sum>(sum);
    if (group.rank() == 0) a.out[row] = a.kind == u32(LossFunction::CrossEntropy) ? sum : sum / float(a.classes);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(LOSS_THREADS) name##_##T(LossArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, loss)
