// Arguments of token_loss.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `token_loss` and `token_loss_backward`.
constexpr unsigned TOKEN_LOSS_THREADS = 256;

/// `token_loss`: the cross-entropy of each token's logits and label.
struct TokenLossArgs {
    /// T `[tokens, classes]`.
    DEVICE_POINTER(const void) logits;
    /// `[tokens]`. Tokens whose label is negative, or not below `classes`, are left out.
    DEVICE_POINTER(const int) labels;
    /// f32 `[tokens]`.
    DEVICE_POINTER(float) losses;
    /// f32 `[tokens]`: 1 where no logit is larger than that of the label.
    DEVICE_POINTER(float) hits;
    /// Rows of the logits.
    unsigned tokens;
    /// Columns of the logits.
    unsigned classes;
};

} // namespace hipvit
