// Arguments and geometry of group_norm.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `group_norm`.
constexpr unsigned GROUP_NORM_THREADS = 256;

/// `group_norm`: out = (x − mean) / √(variance + epsilon) · weight + bias, over all pixels of each group of channels of an image.
struct GroupNormArgs {
    /// T `[images, pixels, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[channels]`.
    DEVICE_POINTER(const void) weight;
    /// T `[channels]`.
    DEVICE_POINTER(const void) bias;
    /// T `[images, pixels, channels]`. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Images in the batch.
    unsigned images;
    /// Pixels of an image.
    unsigned pixels;
    /// Channels of a pixel.
    unsigned channels;
    /// Groups of channels, a divisor of `channels`.
    unsigned groups;
    /// Added to the variance.
    float epsilon;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
