// Arguments of grid_mask.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"
#include "patch_grid.h"

namespace hipvit {

/// `grid_mask`: which tokens are an image's own.
struct GridMaskArgs {
    /// u8 `[images, tokens]`, whatever T is: 1 for the image's own, 0 for the rest.
    DEVICE_POINTER(unsigned char) out;
    /// The images' grids.
    PatchGrids grids;
    /// Images in the batch.
    unsigned images;
    /// Tokens of an image.
    unsigned tokens;
};

} // namespace hipvit
