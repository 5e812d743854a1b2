// Arguments of token_loss_backward.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// `token_loss_backward`: the derivative of each token's cross-entropy with respect to its logits, times the token's gradient.
struct TokenLossBackwardArgs {
    /// T `[tokens, classes]`.
    DEVICE_POINTER(const void) logits;
    /// `[tokens]`. Tokens whose label is negative, or not below `classes`, get zeros.
    DEVICE_POINTER(const int) labels;
    /// f32 `[tokens]`.
    DEVICE_POINTER(const float) gradient;
    /// T `[tokens, classes]`.
    DEVICE_POINTER(void) out;
    /// Rows of the logits.
    unsigned tokens;
    /// Columns of the logits.
    unsigned classes;
};

} // namespace hipvit
