// Arguments of loss_backward.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// `loss_backward`: the derivative of each row's loss with respect to its logits, times the row's gradient.
struct LossBackwardArgs {
    /// T `[rows, classes]`.
    DEVICE_POINTER(const void) logits;
    /// f32 `[rows, classes]`.
    DEVICE_POINTER(const float) targets;
    /// f32 `[rows]`.
    DEVICE_POINTER(const float) gradient;
    /// T `[rows, classes]`.
    DEVICE_POINTER(void) out;
    /// Rows of the matrices.
    unsigned rows;
    /// Columns of the matrices.
    unsigned classes;
    /// One of `LossFunction` of loss.h.
    unsigned kind;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
