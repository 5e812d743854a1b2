// Arguments of accumulate.
#pragma once
#include "device_pointer.h"
#include "optimizer.h"

namespace hipvit {

/// `accumulate`: out = keep · sum + gradient, or the gradient if keep is 0.
struct AccumulateArgs {
    /// f32 `[elements]`.
    DEVICE_POINTER(const float) sum;
    /// T `[elements]`.
    DEVICE_POINTER(const void) gradient;
    /// f32 `[1]`.
    DEVICE_POINTER(const float) keep;
    /// f32 `[elements]`; may alias `sum`.
    DEVICE_POINTER(float) out;
    /// Number of elements.
    unsigned elements;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
