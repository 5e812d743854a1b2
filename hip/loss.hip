// loss: the loss of each row of logits and targets.
//
// Shapes: logits T, targets f32 [rows, classes], row-major; out f32 [rows].
// Alignment: any; rows are few, so elements are loaded one by one.
// Accumulator: f32, after the row's maximum is subtracted.
// Geometry: a row per block of LOSS_THREADS.
#include "loss.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void loss(const LossArgs &a) {
    HIPVIT_LDS static float scratch[LOSS_THREADS / WAVE];
    const RowGroup<LOSS_THREADS> group{true, scratch};
    const u64 first = u64(group.row()) * a.classes;
    const float value = loss_of_row(group, a.kind, (const T *)a.logits + first, a.targets + first, a.classes);
    if (group.rank() == 0) a.out[group.row()] = value;
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(LOSS_THREADS) name##_##T(LossArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, loss)
