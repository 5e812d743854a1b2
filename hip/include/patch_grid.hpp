// Reads an image's grid of patches.
#pragma once
#include "device.hpp"
#include "patch_grid.h"

namespace hipvit {

struct PatchGrid {
    u32 rows, columns;

    // Reads a grid, and clamps it to at least one patch and at most `tokens`.
    HIPVIT_DEVICE PatchGrid(const PatchGrids &grids, u64 image, u32 tokens) {
        const u8 *at = grids.pixels + grids.first + image * grids.image;
        rows = clamped(at[0] | u32(at[1]) << 8, tokens);
        columns = clamped(at[2] | u32(at[3]) << 8, tokens / rows);
    }

    HIPVIT_DEVICE u32 patches() const { return rows * columns; }

    HIPVIT_DEVICE static u32 clamped(u32 extent, u32 most) { return extent < 1 ? 1 : extent < most ? extent : most; }
};

} // namespace hipvit
