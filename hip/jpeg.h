// Arguments and geometry of jpeg.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of both kernels.
constexpr unsigned JPEG_THREADS = 256;
/// Blocks of 8×8 samples that a block of threads of `jpeg_samples` computes.
constexpr unsigned JPEG_BLOCKS = JPEG_THREADS / 8;
/// Pixels that a thread of `jpeg_pixels` computes.
constexpr unsigned JPEG_PIXELS = 4;
/// Maximum number of images of a launch: 3 KiB of arguments, where the drivers take 4 KiB.
constexpr unsigned JPEG_IMAGES = 32;
/// Words of the quantisation steps, before those of the blocks.
constexpr unsigned JPEG_STEP_WORDS = 3 * 64;

/// `JpegImage::color`: one component.
constexpr unsigned JPEG_GREY = 0;
/// `JpegImage::color`: red, green and blue.
constexpr unsigned JPEG_RGB = 1;
/// `JpegImage::color`: luma and two colour differences, as in JFIF.
constexpr unsigned JPEG_YCBCR = 2;

/// `JpegImage::upsampling`: repeats samples `repeat_x` and `repeat_y` times.
constexpr unsigned JPEG_REPEATED = 0;
/// `JpegImage::upsampling`: doubles the columns, with weights 3/4 and 1/4.
constexpr unsigned JPEG_COLUMNS = 1;
/// `JpegImage::upsampling`: doubles the rows, with weights 3/4 and 1/4.
constexpr unsigned JPEG_ROWS = 2;
/// `JpegImage::upsampling`: doubles rows and columns.
constexpr unsigned JPEG_BOTH = 3;

/// Arguments of one image of `jpeg_samples` and `jpeg_pixels`.
struct JpegImage {
    /// u32: `JPEG_STEP_WORDS` steps, `blocks` blocks, then `entries` halves of words. The format is that of
    /// crates/image/src/decode/jpeg/coefficients.rs.
    DEVICE_POINTER(const unsigned) words;
    /// u8 `[blocks, 64]` for all components: the samples of each, `[8 × blocks high, 8 × blocks wide]`.
    DEVICE_POINTER(unsigned char) samples;
    /// u8 RGB `[height, width, 3]`.
    DEVICE_POINTER(unsigned char) pixels;
    /// Entries of all blocks.
    unsigned entries;
    /// Blocks of all components.
    unsigned blocks;
    /// Blocks of the first component.
    unsigned luma_blocks;
    /// Blocks of each other component.
    unsigned chroma_blocks;
    /// Blocks of a row of the first component.
    unsigned luma_wide;
    /// Blocks of a row of the other components.
    unsigned chroma_wide;
    /// Samples of a row of the other components, at least 1.
    unsigned chroma_width;
    /// Rows of samples of the other components, at least 1.
    unsigned chroma_height;
    /// Pixels of a row.
    unsigned width;
    /// Rows of pixels.
    unsigned height;
    /// JPEG_GREY, JPEG_RGB or JPEG_YCBCR.
    unsigned color;
    /// JPEG_REPEATED, JPEG_COLUMNS, JPEG_ROWS or JPEG_BOTH.
    unsigned upsampling;
    /// Columns that JPEG_REPEATED makes of one.
    unsigned repeat_x;
    /// Rows that JPEG_REPEATED makes of one.
    unsigned repeat_y;
};

/// `jpeg_samples` and `jpeg_pixels`: the pixels of several images, of any sizes.
struct JpegArgs {
    /// The first `count` exist.
    JpegImage images[JPEG_IMAGES];
    /// Blocks of threads of each image.
    unsigned image_blocks;
    /// For host-side bounds checks only.
    unsigned count;
};

} // namespace hipvit
