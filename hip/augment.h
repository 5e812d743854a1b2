// Arguments and geometry of augment.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block.
constexpr unsigned AUGMENT_THREADS = 512;
/// Words of an operation: the kind in the low half and a colour in the high half of the first one, then f64 numbers.
constexpr unsigned AUGMENT_OPERATION_WORDS = 8;
/// Words of a mixture: kind, two weights as f32, first row, row after the last, first column, column after the last.
constexpr unsigned AUGMENT_MIXTURE_WORDS = 7;

/// Kind of an operation: each pixel (x, y) is the one at (n₀x + n₁, n₂y + n₃), and the colour outside of the image.
constexpr unsigned AUGMENT_MOVE = 0;
/// Affine transformation to the nearest pixel, in 16.16 fixed point: steps of x per column and row, steps of y, both starts.
constexpr unsigned AUGMENT_NEAREST = 1;
/// Affine transformation with bilinear interpolation: the matrix.
constexpr unsigned AUGMENT_BILINEAR = 2;
/// Affine transformation with bicubic interpolation: the matrix.
constexpr unsigned AUGMENT_BICUBIC = 3;
/// Sharpness: the factor.
constexpr unsigned AUGMENT_SHARPNESS = 4;
/// Brightness: the factor.
constexpr unsigned AUGMENT_BRIGHTNESS = 5;
/// Contrast: the factor.
constexpr unsigned AUGMENT_CONTRAST = 6;
/// Saturation: the factor.
constexpr unsigned AUGMENT_SATURATION = 7;
/// Hue: the byte that is added.
constexpr unsigned AUGMENT_HUE = 8;
/// Posterize: the mask of the bits that are kept.
constexpr unsigned AUGMENT_POSTERIZE = 9;
/// Solarize: the smallest byte that is inverted.
constexpr unsigned AUGMENT_SOLARIZE = 10;
/// Addition to bytes below 128.
constexpr unsigned AUGMENT_SOLARIZE_ADD = 11;
/// Inversion of all bytes.
constexpr unsigned AUGMENT_INVERT = 12;
/// Flat histograms.
constexpr unsigned AUGMENT_EQUALIZE = 13;
/// Full range of each channel.
constexpr unsigned AUGMENT_AUTOCONTRAST = 14;

/// Kind of a mixture: the image alone.
constexpr unsigned AUGMENT_ALONE = 0;
/// Kind of a mixture: weighted sum with the partner.
constexpr unsigned AUGMENT_BLEND = 1;
/// Kind of a mixture: a rectangle of the partner.
constexpr unsigned AUGMENT_CUT = 2;

/// `augment`: applies each image's operations.
struct AugmentArgs {
    /// u8 `[images, height, width, 3]`, which the kernel overwrites.
    DEVICE_POINTER(unsigned char) pixels;
    /// u8 `[images, height, width, 3]`: the results.
    DEVICE_POINTER(unsigned char) out;
    /// u64 `[operations, AUGMENT_OPERATION_WORDS]`.
    DEVICE_POINTER(const unsigned long long) operations;
    /// u32 `[images + 1]`: the first operation of each image.
    DEVICE_POINTER(const unsigned) starts;
    /// Images in the batch.
    unsigned images;
    /// Rows of an image.
    unsigned height;
    /// Columns of an image.
    unsigned width;
    /// Operations of all images.
    unsigned count;
};

/// `augment_mix`: mixes each image with the one at the mirrored place.
struct AugmentMixArgs {
    /// u8 `[images, height, width, 3]`, in place. `images` is even.
    DEVICE_POINTER(unsigned char) pixels;
    /// u32 `[images, AUGMENT_MIXTURE_WORDS]`.
    DEVICE_POINTER(const unsigned) mixtures;
    /// Images in the batch.
    unsigned images;
    /// Rows of an image.
    unsigned height;
    /// Columns of an image.
    unsigned width;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
