// Arguments of adamw_bf16 and adamw_int8.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Elements whose moments share two scales, and threads per block of adamw_int8.
constexpr unsigned INT8_MOMENTS = 256;
/// Words of the moments of a block: two scales, then four codes of first moments per word, then four codes of second moments per word.
constexpr unsigned INT8_MOMENTS_WORDS = 130;

/// `adamw_bf16`, `adamw_int8`: a step of AdamW with moments in bf16 or in 8 bits.
struct CompactAdamWArgs {
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) weight;
    /// T or f32 `[elements]`.
    DEVICE_POINTER(const void) gradient;
    /// In bf16 `[elements]`, with the first moment in the upper half of a word; in 8 bits `[blocks, INT8_MOMENTS_WORDS]`.
    DEVICE_POINTER(const unsigned) moments;
    /// f32 `[4]`: learning rate, 1 − beta1^t, 1 − beta2^t, number of the update.
    DEVICE_POINTER(const float) rates;
    /// f32 `[1]`, multiplied with the gradient. If it is NaN, the weight and the moments stay as they are.
    DEVICE_POINTER(const float) factor;
    /// f32 `[elements]`; may alias `weight`.
    DEVICE_POINTER(float) new_weight;
    /// Of the shape of `moments`; may alias them.
    DEVICE_POINTER(unsigned) new_moments;
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
    /// 1 for `adamw_int8`, 0 for `adamw_bf16`.
    unsigned int8;
};

} // namespace hipvit
