// distillation_loss_backward: the derivatives of each row's loss with respect to both logits, times the row's gradient.
//
// Shapes: logits, distilled, d_logits, d_distilled T, targets, teacher f32 [rows, classes], row-major; gradient f32 [rows].
// Alignment: any; rows are few, so elements are loaded one by one.
// Accumulator: f32, after the row's maximum is subtracted.
// Geometry: a row per block of LOSS_THREADS.
#include "distillation_loss_backward.h"
#include "distillation.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void distillation_loss_backward(const DistillationLossBackwardArgs &a) {
    HIPVIT_LDS static float scratch[LOSS_THREADS / WAVE];
    const RowGroup<LOSS_THREADS> group{true, scratch};
    const u64 first = u64(group.row()) * a.classes;
    const float gradient = a.gradient[group.row()];
    loss_backward_of_row(group, a.base, (const T *)a.logits + first, a.targets + first, a.classes, (1.0f - a.alpha) * gradient,
                         (T *)a.d_logits + first);
    const T *distilled = (const T *)a.distilled + first;
    const float *teacher = a.teacher + first;
    T *out = (T *)a.d_distilled + first;
    if (a.is_hard) {
        const u32 index = largest_index(group, teacher, a.classes);
        const RowSoftmax<T> student(group, distilled, a.classes, 1.0f);
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS)
            out[i] = from_float<T>(gradient * a.alpha * (student.at(i) - (i == index ? 1.0f : 0.0f)));
    } else {
        const float inverse = 1.0f / a.temperature, factor = gradient * a.alpha * a.temperature / float(a.classes);
        const RowSoftmax<T> student(group, distilled, a.classes, inverse);
        const RowSoftmax<float> of_teacher(group, teacher, a.classes, inverse);
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS)
            out[i] = from_float<T>(factor * (student.at(i) - of_teacher.at(i)));
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(LOSS_THREADS) name##_##T(DistillationLossBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, distillation_loss_backward)
