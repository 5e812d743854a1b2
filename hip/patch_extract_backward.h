// Arguments of patch_extract_backward.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `patch_extract_backward`: the gradient of images from that of their patches.
struct PatchExtractBackwardArgs {
    /// T `[images · patches, 3 · patch_height · patch_width]`, patches = ⌊height / `patch_height`⌋ · ⌊width /
    /// `patch_width`⌋.
    DEVICE_POINTER(const void) dy;
    /// T `[images, height, width, 3]`, or `[images, 3, height, width]` if `chw`. Does not alias `dy`.
    DEVICE_POINTER(void) dx;
    /// Factor of each channel.
    float scale[3];
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
    /// 0: rows of pixels. 1: planes.
    unsigned chw;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
