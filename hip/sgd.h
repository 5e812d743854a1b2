// Arguments of sgd.
#pragma once
#include "device_pointer.h"
#include "optimizer.h"

namespace hipvit {

/// `sgd`: a step of SGD with momentum.
struct SgdArgs {
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) weight;
    /// T or f32 `[elements]`.
    DEVICE_POINTER(const void) gradient;
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) momentum;
    /// f32 `[1]`: learning rate.
    DEVICE_POINTER(const float) rate;
    /// f32 `[1]`, multiplied with the gradient. If it is NaN, the weight and the momentum stay as they are.
    DEVICE_POINTER(const float) factor;
    /// f32 `[elements]`; may alias `weight`.
    DEVICE_POINTER(float) new_weight;
    /// f32 `[elements]`; may alias `momentum`.
    DEVICE_POINTER(float) new_momentum;
    /// T `[elements]`. May be null.
    DEVICE_POINTER(void) rounded;
    /// Number of elements.
    unsigned elements;
    /// Decay of the momentum.
    float decay;
    /// Multiplied with the weight and added to the gradient.
    float weight_decay;
    /// Multiplied with the learning rate.
    float rate_factor;
    /// 1 if the gradient is in f32 for any T.
    unsigned f32_gradient;
    /// 1 for Nesterov's momentum.
    unsigned nesterov;
};

} // namespace hipvit
