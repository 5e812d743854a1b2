// Arguments of moving_average.
#pragma once
#include "device_pointer.h"
#include "optimizer.h"

namespace hipvit {

/// `moving_average`: out = decay · average + (1 − decay) · weight, or the average if the factor is NaN.
struct MovingAverageArgs {
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) average;
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) weight;
    /// f32 `[1]`. If it is NaN, the average stays as it is.
    DEVICE_POINTER(const float) factor;
    /// f32 `[elements]`; may alias `average`.
    DEVICE_POINTER(float) out;
    /// Number of elements.
    unsigned elements;
    /// Share of the average that stays.
    float decay;
};

} // namespace hipvit
