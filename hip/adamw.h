// Arguments and geometry of adamw.
#pragma once
#include "device_pointer.h"
#include "optimizer.h"

namespace hipvit {

/// Maximum number of tensors that a launch of `adamw` updates.
constexpr unsigned ADAMW_TENSORS = 16;
/// Elements that a thread of `adamw` loads at once.
constexpr unsigned ADAMW_VEC = 4;
/// Elements that a block of `adamw` updates.
constexpr unsigned ADAMW_ELEMENTS = ADAMW_VEC * OPTIMIZER_ELEMENTS * OPTIMIZER_THREADS;

/// A tensor that `adamw` updates.
struct AdamWTensor {
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) weight;
    /// T or f32 `[elements]`.
    DEVICE_POINTER(const void) gradient;
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) first;
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) second;
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
    /// First block of the grid that updates the tensor. Ascending.
    unsigned first_block;
};

/// `adamw`: a step of AdamW.
struct AdamWArgs {
    /// The tensors, of which the first `count` are used.
    AdamWTensor tensors[ADAMW_TENSORS];
    /// f32 `[3]`: learning rate, 1 − beta1^t, 1 − beta2^t.
    DEVICE_POINTER(const float) rates;
    /// f32 `[1]`, multiplied with the gradients. If it is NaN, the weights and the moments stay as they are.
    DEVICE_POINTER(const float) factor;
    /// Number of tensors, at least 1.
    unsigned count;
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
    /// 1 if the gradients are in f32 for any T.
    unsigned f32_gradient;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
