// Arguments of grid_positions.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"
#include "patch_grid.h"

namespace hipvit {

/// `grid_positions`: adds the position table, resampled to each image's grid of patches, to the image's tokens.
struct GridPositionsArgs {
    /// T `[images, tokens, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[side, side, channels]`.
    DEVICE_POINTER(const void) table;
    /// T `[images, tokens, channels]`. May be `x`.
    DEVICE_POINTER(void) out;
    /// The images' grids.
    PatchGrids grids;
    /// Images in the batch.
    unsigned images;
    /// Tokens of an image.
    unsigned tokens;
    /// Rows of the table, and its columns.
    unsigned side;
    /// Channels of a token.
    unsigned channels;
};

} // namespace hipvit
