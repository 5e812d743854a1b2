// Arguments of patch_extract.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `patch_extract` and `patch_extract_chw`: turn images into normalised rows of the patch matrix.
struct PatchExtractArgs {
    /// `patch_extract`: u8 `[images, height, width, 3]`. `patch_extract_chw`: f32 `[images, 3, height, width]`.
    DEVICE_POINTER(const void) pixels;
    /// T `[images · patches, 3 · patch_height · patch_width]`, patches = ⌊height / `patch_height`⌋ · ⌊width /
    /// `patch_width`⌋.
    DEVICE_POINTER(void) out;
    /// Factor of each channel.
    float scale[3];
    /// Added to each channel after the multiplication.
    float shift[3];
    /// Images in the batch.
    unsigned images;
    /// Rows of an image.
    unsigned height;
    /// Columns of an image.
    unsigned width;
    /// Rows of a patch, 1 to `height`.
    unsigned patch_height;
    /// Columns of a patch, 1 to `width`.
    unsigned patch_width;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
