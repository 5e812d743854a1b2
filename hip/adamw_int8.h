// Arguments of adamw_int8.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Elements whose moments share two scales, and threads per block of adamw_int8.
constexpr unsigned INT8_MOMENTS = 256;
/// Words of the moments of a block: two scales, then four codes of first moments per word, then four codes of second moments per word.
constexpr unsigned INT8_MOMENTS_WORDS = 130;

/// `adamw_int8`: a step of AdamW with moments in 8 bits.
struct AdamWInt8Args {
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) weight;
    /// T or f32 `[elements]`.
    DEVICE_POINTER(const void) gradient;
    /// `[blocks, INT8_MOMENTS_WORDS]`.
    DEVICE_POINTER(const unsigned) moments;
    /// f32 `[4]`: learning rate, 1 − beta1^t, 1 − beta2^t, number of the update.
    DEVICE_POINTER(const float) rates;
    /// f32 `[1]`, multiplied with the gradient. If it is NaN, the weight and the moments stay as they are.
    DEVICE_POINTER(const float) factor;
    /// f32 `[elements]`; may alias `weight`.
    DEVICE_POINTER(float) new_weight;
    /// `[blocks, INT8_MOMENTS_WORDS]`; may alias `moments`.
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
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
