// Arguments and geometry of resize.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block.
constexpr unsigned RESIZE_THREADS = 256;
/// Fractional bits of the weights.
constexpr unsigned RESIZE_FRACTIONAL_BITS = 22;
/// Bytes of a row that a thread of `resize_vertical` computes.
constexpr unsigned RESIZE_VERTICAL_BYTES = 4;
/// Maximum number of images of a launch: 2 KiB of arguments, where the drivers take 4 KiB.
constexpr unsigned RESIZE_IMAGES = 32;

/// Arguments of one image of `resize_horizontal` or `resize_vertical`: one pass of a separable resampling.
struct ResizeImage {
    /// u8. Horizontal: `[rows, columns, 3]`. Vertical: `[rows, columns]`. Rows are `input_row` bytes apart.
    DEVICE_POINTER(const unsigned char) input;
    /// u8. Horizontal: `[rows, outputs, 3]`. Vertical: `[outputs, columns]`.
    DEVICE_POINTER(unsigned char) output;
    /// i32 `[outputs, taps]`, with `RESIZE_FRACTIONAL_BITS` fractional bits.
    DEVICE_POINTER(const int) weights;
    /// u32 `[outputs]`: the first input position.
    DEVICE_POINTER(const unsigned) starts;
    /// u32 `[outputs]`: number of input positions, at most `taps`.
    DEVICE_POINTER(const unsigned) counts;
    /// Bytes between input rows.
    unsigned long long input_row;
    /// Weights per output position.
    unsigned taps;
    /// Output positions along the resampled axis.
    unsigned outputs;
    /// Rows of the input. The vertical pass uses them for host-side bounds checks only.
    unsigned rows;
    /// Vertical: bytes of a row. Horizontal: pixels of an input row, for host-side bounds checks only.
    unsigned columns;
};

/// `resize_horizontal` and `resize_vertical`: one pass over several images, of any sizes.
struct ResizeArgs {
    /// The first `count` exist.
    ResizeImage images[RESIZE_IMAGES];
    /// Blocks of each image.
    unsigned image_blocks;
    /// For host-side bounds checks only.
    unsigned count;
};

/// Arguments of one image of `resize_nearest`, a lookup.
struct ResizeNearestImage {
    /// u8 RGB, rows `input_row` bytes apart.
    DEVICE_POINTER(const unsigned char) input;
    /// u8 `[height, width, 3]`.
    DEVICE_POINTER(unsigned char) output;
    /// u32 `[width]`: the input column.
    DEVICE_POINTER(const unsigned) columns;
    /// u32 `[height]`: the input row.
    DEVICE_POINTER(const unsigned) rows;
    /// Bytes between input rows.
    unsigned long long input_row;
    /// Columns of the output.
    unsigned width;
    /// Rows of the output.
    unsigned height;
    /// Rows of the input, for host-side bounds checks only.
    unsigned input_height;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

/// `resize_nearest`: the lookup for several images, of any sizes.
struct ResizeNearestArgs {
    /// The first `count` exist.
    ResizeNearestImage images[RESIZE_IMAGES];
    /// Blocks of each image.
    unsigned image_blocks;
    /// For host-side bounds checks only.
    unsigned count;
};

} // namespace hipvit
