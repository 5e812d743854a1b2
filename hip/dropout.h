// Arguments of dropout.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `dropout`: out = x times `factor`, or 0 where a random number is below `threshold`.
struct DropoutArgs {
    /// T `[images, elements]`.
    DEVICE_POINTER(const void) x;
    /// f32 `[images, 2]`, whose bits are the keys of the random numbers.
    DEVICE_POINTER(const float) keys;
    /// T `[images, elements]`; may alias `x`.
    DEVICE_POINTER(void) out;
    /// Images in the batch.
    unsigned images;
    /// Elements of an image.
    unsigned elements;
    /// Number of the dropout within the model.
    unsigned site;
    /// Random numbers below it make their element 0.
    unsigned threshold;
    /// Factor of the other elements.
    float factor;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
