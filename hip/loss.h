// Arguments of loss.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `loss` and `loss_backward`.
constexpr unsigned LOSS_THREADS = 256;

/// Function of a row of logits and targets, the `kind` of [`LossArgs`] and [`LossBackwardArgs`].
enum class LossFunction : unsigned {
    /// −Σ target · ln softmax(logits).
    CrossEntropy,
    /// Mean of −target · ln σ(logit) − (1 − target) · ln σ(−logit).
    BinaryCrossEntropy,
    /// Mean of (logit − target)².
    MeanSquaredError,
};

/// `loss`: the loss of each row.
struct LossArgs {
    /// T `[rows, classes]`.
    DEVICE_POINTER(const void) logits;
    /// f32 `[rows, classes]`.
    DEVICE_POINTER(const float) targets;
    /// f32 `[rows]`.
    DEVICE_POINTER(float) out;
    /// Rows of the matrices.
    unsigned rows;
    /// Columns of the matrices.
    unsigned classes;
    /// One of [`LossFunction`].
    unsigned kind;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
