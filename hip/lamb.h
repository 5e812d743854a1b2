// Arguments of lamb, lamb_part and lamb_ratio.
#pragma once
#include "device_pointer.h"
#include "optimizer.h"

namespace hipvit {

/// `lamb_part`: the new moments, and the sums of the squares of each block's weights and updates.
struct LambPartArgs {
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
    /// f32 `[1]`, multiplied with the gradient. If it is NaN, the moments stay as they are.
    DEVICE_POINTER(const float) factor;
    /// f32 `[elements]`; may alias `first`.
    DEVICE_POINTER(float) new_first;
    /// f32 `[elements]`; may alias `second`.
    DEVICE_POINTER(float) new_second;
    /// f32 `[2, blocks]`: of the weights, and of the updates.
    DEVICE_POINTER(float) sums;
    /// Number of elements.
    unsigned elements;
    /// Decay of the first moment.
    float beta1;
    /// Decay of the second moment.
    float beta2;
    /// Added to the root of the second moment.
    float epsilon;
    /// Share of the weight in the update.
    float weight_decay;
    /// 1 if the gradient is in f32 for any T.
    unsigned f32_gradient;
};

/// `lamb_ratio`: the trust ratio, ‖weight‖ / ‖update‖.
struct LambRatioArgs {
    /// f32 `[2, parts]`.
    DEVICE_POINTER(const float) sums;
    /// f32 `[1]`.
    DEVICE_POINTER(float) ratio;
    /// Number of blocks of `lamb_part`.
    unsigned parts;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

/// `lamb`: the new weight, from the new moments.
struct LambArgs {
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) weight;
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) first;
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) second;
    /// f32 `[3]`: learning rate, 1 − beta1^t, 1 − beta2^t.
    DEVICE_POINTER(const float) rates;
    /// f32 `[1]`. If it is NaN, the weight stays as it is.
    DEVICE_POINTER(const float) factor;
    /// f32 `[1]`: the trust ratio. Null for 1.
    DEVICE_POINTER(const float) ratio;
    /// f32 `[elements]`; may alias `weight`.
    DEVICE_POINTER(float) new_weight;
    /// T `[elements]`. May be null.
    DEVICE_POINTER(void) rounded;
    /// Number of elements.
    unsigned elements;
    /// Added to the root of the second moment.
    float epsilon;
    /// Share of the weight in the update.
    float weight_decay;
    /// Multiplied with the learning rate.
    float rate_factor;
};

} // namespace hipvit
