// loss_backward: the derivative of each row's loss with respect to its logits, times the row's gradient.
//
// Shapes: logits, out T, targets f32 [rows, classes], row-major; gradient f32 [rows].
// Alignment: any; rows are few, so elements are loaded one by one.
// Accumulator: f32, after the row's maximum is subtracted.
// Geometry: a row per block of LOSS_THREADS.
#include "loss_backward.h"
#include "loss.h"
#include "wave.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void loss_backward(const LossBackwardArgs &a) {
    HIPVIT_LDS static float scratch[LOSS_THREADS / WAVE];
    const RowGroup<LOSS_THREADS> group{true, scratch};
    const u32 row = group.row();
    const T *logits = (const T *)a.logits + u64(row) * a.classes;
    const float *targets = a.targets + u64(row) * a.classes;
    T *out = (T *)a.out + u64(row) * a.classes;
    const float gradient = a.gradient[row], mean = gradient / float(a.classes);
    if (a.kind == u32(LossFunction::CrossEntropy)) {
        float most = -infinity();
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS) most = larger(most, to_float(logits[i]));
        most = group.template reduce<Max>(most);
        float total = 0.0f, of_targets = 0.0f;
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS) {
            total += exponential(to_float(logits[i]) - most);
            of_targets += targets[i];
        }
        total = group.template reduce<Sum>(total);
        const float factor = group.template reduce<Sum>(of_targets) / total;
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS) {
            const float d = exponential(to_float(logits[i]) - most) * factor - targets[i];
            out[i] = from_float<T>(d * gradient);
        }
    } else {
        const bool is_binary = a.kind == u32(LossFunction::BinaryCrossEntropy);
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS) {
            const float z = to_float(logits[i]);
            const float d = is_binary ? 1.0f / (1.0f + exponential(-z)) - targets[i] : 2.0f * (z - targets[i]);
            out[i] = from_float<T>(d * mean);
        }
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(LOSS_THREADS) name##_##T(LossBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, loss_backward)
