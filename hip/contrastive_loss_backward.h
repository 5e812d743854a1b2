// Arguments of contrastive_loss_backward, contrastive_loss_backward_logs and contrastive_loss_backward_totals.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// `contrastive_loss_backward_logs`: ln Σ e^logit of each row and of each column of the logits, for InfoNCE.
struct ContrastiveLogsArgs {
    /// T `[pairs, pairs]`.
    DEVICE_POINTER(const void) similarity;
    /// f32 `[1]`: logarithm of the factor of the similarities.
    DEVICE_POINTER(const float) log_scale;
    /// f32 `[2, pairs]`: of rows, and of columns.
    DEVICE_POINTER(float) out;
    /// Rows and columns of the matrix.
    unsigned pairs;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

/// `contrastive_loss_backward`: the derivatives of the losses with respect to the similarities, and the sums of each row for those of the
/// scale and of the bias.
struct ContrastiveLossBackwardArgs {
    /// T `[pairs, pairs]`.
    DEVICE_POINTER(const void) similarity;
    /// f32 `[1]`: logarithm of the factor of the similarities.
    DEVICE_POINTER(const float) log_scale;
    /// f32 `[1]`, added to the logits: SigLIP's loss. Null for InfoNCE.
    DEVICE_POINTER(const float) bias;
    /// f32 `[pairs]`: gradient of each loss.
    DEVICE_POINTER(const float) gradient;
    /// f32 `[2, pairs]`: result of `contrastive_loss_backward_logs`. Null for SigLIP's loss.
    DEVICE_POINTER(const float) logs;
    /// T `[pairs, pairs]`; not `similarity`.
    DEVICE_POINTER(void) out;
    /// f32 `[2, pairs]`: Σ d · logit without bias of each row, and Σ d.
    DEVICE_POINTER(float) sums;
    /// Rows and columns of the matrix.
    unsigned pairs;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

/// `contrastive_loss_backward_totals`: the derivatives with respect to the scale's logarithm and to the bias.
struct ContrastiveTotalsArgs {
    /// f32 `[2, pairs]`.
    DEVICE_POINTER(const float) sums;
    /// T `[1]`.
    DEVICE_POINTER(void) log_scale;
    /// T `[1]`. Null for InfoNCE.
    DEVICE_POINTER(void) bias;
    /// Number of sums.
    unsigned pairs;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
