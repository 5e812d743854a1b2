// The grid of each image of a batch: its rows and columns of patches.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Bytes of a grid: rows, then columns, each u16 with its low byte first.
constexpr unsigned PATCH_GRID_BYTES = 4;

/// Grids of patches. The grid of image b begins at byte `first` + b · `image` of `pixels`. An empty grid becomes one patch; a grid of
/// more patches than the image has tokens is cut to fit.
struct PatchGrids {
    /// u8.
    DEVICE_POINTER(const unsigned char) pixels;
    /// Bytes from one image to the next.
    unsigned long long image;
    /// Byte offset of the first image's grid.
    unsigned long long first;
};

} // namespace hipvit
