// Arguments and geometry of planes.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block.
constexpr unsigned PLANES_THREADS = 256;
/// Words of an erased rectangle: top, left, height, width, first value, values between channels, values between pixels.
constexpr unsigned PLANES_ERASURE_WORDS = 7;

/// `planes`: normalised planes of u8 images, with erased rectangles.
struct PlanesArgs {
    /// u8 `[images, pixels, 3]`.
    DEVICE_POINTER(const unsigned char) bytes;
    /// f32 `[images, 3, pixels]`.
    DEVICE_POINTER(float) out;
    /// f32 `[3, 256]`: the value of each byte.
    DEVICE_POINTER(const float) table;
    /// f32 `[values]`: contents of rectangles.
    DEVICE_POINTER(const float) values;
    /// u32 `[erasures, PLANES_ERASURE_WORDS]`.
    DEVICE_POINTER(const unsigned) erasures;
    /// u32 `[images + 1]`: the first rectangle of each image.
    DEVICE_POINTER(const unsigned) starts;
    /// Images in the batch.
    unsigned images;
    /// Rows of an image.
    unsigned height;
    /// Columns of an image.
    unsigned width;
    /// Rectangles of all images.
    unsigned erasure_count;
    /// Values of all rectangles.
    unsigned value_count;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
