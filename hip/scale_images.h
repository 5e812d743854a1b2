// Arguments of scale_images.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `scale_images`: out = x times the factor of its image.
struct ScaleImagesArgs {
    /// T `[images, elements]`.
    DEVICE_POINTER(const void) x;
    /// f32 `[images, stride]`, of which the first column is read.
    DEVICE_POINTER(const float) factors;
    /// T `[images, elements]`; may alias `x`.
    DEVICE_POINTER(void) out;
    /// Images in the batch.
    unsigned images;
    /// Elements of an image.
    unsigned elements;
    /// Elements between the factors of two images.
    unsigned stride;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
