// distillation_loss: the loss of each row of logits, of which a part compares them with those of a teacher.
//
// Shapes: logits, distilled T, targets, teacher f32 [rows, classes], row-major; out f32 [rows].
// Alignment: any; rows are few, so elements are loaded one by one.
// Accumulator: f32, after the row's maximum is subtracted.
// Geometry: a row per block of LOSS_THREADS.
#include "distillation_loss.h"
#include "distillation.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void distillation_loss(const DistillationLossArgs &a) {
    HIPVIT_LDS static float scratch[LOSS_THREADS / WAVE];
    const RowGroup<LOSS_THREADS> group{true, scratch};
    const u64 first = u64(group.row()) * a.classes;
    const float base = loss_of_row(group, a.base, (const T *)a.logits + first, a.targets + first, a.classes);
    const T *distilled = (const T *)a.distilled + first;
    const float *teacher = a.teacher + first;
    float other = 0.0f;
    if (a.is_hard) {
        const u32 index = largest_index(group, teacher, a.classes);
        other = -RowSoftmax<T>(group, distilled, a.classes, 1.0f).logarithm(index);
    } else {
        const float inverse = 1.0f / a.temperature;
        const RowSoftmax<T> student(group, distilled, a.classes, inverse);
        const RowSoftmax<float> of_teacher(group, teacher, a.classes, inverse);
        for (u32 i = group.rank(); i < a.classes; i += LOSS_THREADS)
            other += of_teacher.at(i) * (of_teacher.logarithm(i) - student.logarithm(i));
        other = group.template reduce<Sum>(other) * a.temperature * a.temperature / float(a.classes);
    }
    if (group.rank() == 0) a.out[group.row()] = (1.0f - a.alpha) * base + a.alpha * other;
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(LOSS_THREADS) name##_##T(DistillationLossArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, distillation_loss)
