// loss_backward: the derivative of each row's loss with respect to its logits, times the row's gradient.
//
// Shapes: logits, out T, targets f32 [rows, classes], row-major; gradient f32 [rows].
// Alignment: any; rows are few, so elements are loaded one by one.
// Accumulator: f32, after the row's maximum is subtracted.
// Geometry: a row per block of LOSS_THREADS.
#include "loss_backward.h"
#include "loss.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void loss_backward(const LossBackwardArgs &a) {
    HIPVIT_LDS static float scratch[LOSS_THREADS / WAVE];
    const RowGroup<LOSS_THREADS> group{true, scratch};
    const u64 first = u64(group.row()) * a.classes;
    loss_backward_of_row(group, a.kind, (const T *)a.logits + first, a.targets + first, a.classes, a.gradient[group.row()],
                         (T *)a.out + first);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(LOSS_THREADS) name##_##T(LossBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, loss_backward)
