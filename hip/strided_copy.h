// Arguments and geometry of strided_copy.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Maximum number of axes of a view. Fewer axes are preceded by extents of 1.
constexpr unsigned STRIDED_AXES = 6;
/// Threads per block of `strided_copy`.
constexpr unsigned STRIDED_THREADS = 256;
/// Rows and columns of a tile of `strided_copy_tiled`.
constexpr unsigned STRIDED_TILE = 32;

/// `strided_copy`, `strided_copy_tiled`: out = the elements of a view of x, in the order of the view.
struct StridedCopyArgs {
    /// The tensor that is viewed.
    DEVICE_POINTER(const void) x;
    /// Elements of `element` bytes, `extents`, row-major. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Distance in elements of x between neighbours along each axis. May be 0 or negative.
    long long strides[STRIDED_AXES];
    /// Index in x of the first element.
    unsigned long long offset;
    /// Elements of x.
    unsigned long long elements;
    /// Extents of the view, outermost first.
    unsigned extents[STRIDED_AXES];
    /// Bytes of an element: 1, 2 or 4.
    unsigned element;
    /// `strided_copy`: elements of a row per thread. If they have 16 bytes, all rows start at such multiples and have stride 1.
    unsigned width;
    /// `strided_copy_tiled`: the axis other than the last one whose stride is 1. Otherwise `STRIDED_AXES`.
    unsigned tile_axis;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
