// Arguments of adamw.
#pragma once
#include "device_pointer.h"
#include "optimizer.h"

namespace hipvit {

/// `adamw`: a step of AdamW.
struct AdamWArgs {
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) weight;
    /// T or f32 `[elements]`.
    DEVICE_POINTER(const void) gradient;
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) first;
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) second;
    /// f32 `[3]`: learning rate, 1 − beta1^t, 1 − beta2^t.
    DEVICE_POINTER(const float) rates;
    /// f32 `[1]`, multiplied with the gradient. If it is NaN, the weight and the moments stay as they are.
    DEVICE_POINTER(const float) factor;
    /// f32 `[elements]`; may alias `weight`.
    DEVICE_POINTER(float) new_weight;
    /// f32 `[elements]`; may alias `first`.
    DEVICE_POINTER(float) new_first;
    /// f32 `[elements]`; may alias `second`.
    DEVICE_POINTER(float) new_second;
    /// T `[elements]`. May be null.
    DEVICE_POINTER(void) rounded;
    /// Number of elements.
    unsigned elements;
    /// Decay of the first moment.
    float beta1;
    /// Decay of the second moment.
    float beta2;
    /// Added to the root of the second moment.
    float epsilon;
    /// Part of the weight that a learning rate of 1 subtracts.
    float weight_decay;
    /// Multiplied with the learning rate.
    float rate_factor;
    /// 1 if the gradient is in f32 for any T.
    unsigned f32_gradient;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
