// How many rows and columns of patches each image of a batch has.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Bytes of a grid: rows, then columns, each u16 with its low byte first.
constexpr unsigned PATCH_GRID_BYTES = 4;

/// The grid of image b begins at byte `first` + b · `image` of `pixels`. One that is empty, or of more patches than the image
/// has tokens, is cut to fit.
struct PatchGrids {
    /// u8.
    DEVICE_POINTER(const unsigned char) pixels;
    /// Bytes from one image to the next.
    unsigned long long image;
    /// Where the first image's grid begins.
    unsigned long long first;
};

} // namespace hipvit
