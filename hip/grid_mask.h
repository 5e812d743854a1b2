// Arguments of grid_mask.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"
#include "patch_grid.h"

namespace hipvit {

/// `grid_mask`: marks the tokens that are patches of an image's grid.
struct GridMaskArgs {
    /// u8 `[images, tokens]` for every T: 1 for tokens of the image's grid, 0 for padding.
    DEVICE_POINTER(unsigned char) out;
    /// The images' grids.
    PatchGrids grids;
    /// Images in the batch.
    unsigned images;
    /// Tokens of an image.
    unsigned tokens;
};

} // namespace hipvit
