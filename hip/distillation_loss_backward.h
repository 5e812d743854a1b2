// Arguments of distillation_loss_backward.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// `distillation_loss_backward`: the derivatives of each row's loss with respect to both logits, times the row's gradient.
struct DistillationLossBackwardArgs {
    /// T `[rows, classes]`.
    DEVICE_POINTER(const void) logits;
    /// T `[rows, classes]`; may be `logits`.
    DEVICE_POINTER(const void) distilled;
    /// f32 `[rows, classes]`.
    DEVICE_POINTER(const float) targets;
    /// f32 `[rows, classes]`: logits of the teacher.
    DEVICE_POINTER(const float) teacher;
    /// f32 `[rows]`.
    DEVICE_POINTER(const float) gradient;
    /// T `[rows, classes]`.
    DEVICE_POINTER(void) d_logits;
    /// T `[rows, classes]`.
    DEVICE_POINTER(void) d_distilled;
    /// Rows of the matrices.
    unsigned rows;
    /// Columns of the matrices.
    unsigned classes;
    /// Loss of the targets: one of `LossFunction` of loss.h.
    unsigned base;
    /// 1 for the teacher's class alone, 0 for its probabilities.
    unsigned is_hard;
    /// Share of the comparison with the teacher.
    float alpha;
    /// Divisor of the logits that are compared.
    float temperature;
};

} // namespace hipvit
