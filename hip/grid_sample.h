// Arguments and geometry of grid_sample.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// Interpolation of a sample.
enum class Sampling : unsigned {
    /// The nearest pixel.
    Nearest,
    /// Linear interpolation of 2×2 pixels.
    Linear,
    /// Cubic interpolation of 4×4 pixels.
    Cubic,
};

/// Pixels beyond the edges of an image.
enum class Border : unsigned {
    /// Zeros.
    Zeros,
    /// The nearest pixel.
    Edge,
    /// The image, reflected.
    Reflect,
};

/// `grid_sample`: samples of images at given positions.
struct GridSampleArgs {
    /// T `[images, height, width, channels]`.
    DEVICE_POINTER(const void) x;
    /// f32, or T (`narrow_grid`), `[images, positions, 2]`: column and row, from −1 to 1 over the image.
    DEVICE_POINTER(const void) grid;
    /// T `[images, positions, channels]`. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Images in the batch.
    unsigned images;
    /// Rows of an image.
    unsigned height;
    /// Columns of an image.
    unsigned width;
    /// Channels of a pixel.
    unsigned channels;
    /// Positions in an image.
    unsigned positions;
    /// A `Sampling`.
    unsigned sampling;
    /// A `Border`.
    unsigned border;
    /// 1: −1 and 1 are the centres of the corner pixels; 0: the edges of the image.
    unsigned align_corners;
    /// 1: the grid is T; 0: f32.
    unsigned narrow_grid;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
