// Arguments of contrastive_loss.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `contrastive_loss` and of the kernels of its derivative.
constexpr unsigned CONTRASTIVE_THREADS = 256;

/// `contrastive_loss`: the loss of each pair of an image and a text. Row i of the similarities is of image i.
struct ContrastiveLossArgs {
    /// T `[pairs, pairs]`.
    DEVICE_POINTER(const void) similarity;
    /// f32 `[1]`: logarithm of the factor of the similarities.
    DEVICE_POINTER(const float) log_scale;
    /// f32 `[1]`, added to the logits: SigLIP's loss. Null for InfoNCE.
    DEVICE_POINTER(const float) bias;
    /// f32 `[pairs]`.
    DEVICE_POINTER(float) out;
    /// Rows and columns of the matrix.
    unsigned pairs;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
