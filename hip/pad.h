// Arguments and geometry of pad.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Maximum number of axes of a padded tensor. Fewer axes are preceded by extents of 1.
constexpr unsigned PAD_AXES = 6;
/// Threads per block of `pad`.
constexpr unsigned PAD_THREADS = 256;

/// Elements of a padding.
enum class Padding : unsigned {
    /// `PadArgs::value`.
    Constant,
    /// Mirrored around the first and the last element.
    Reflect,
    /// The first or the last element.
    Edge,
};

/// `pad`: out = x with elements before and after each axis.
struct PadArgs {
    /// Elements of `element` bytes, `from`, row-major.
    DEVICE_POINTER(const void) x;
    /// Elements of `element` bytes, `to`, row-major. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Extents of x, outermost first.
    unsigned from[PAD_AXES];
    /// Extents of `out`.
    unsigned to[PAD_AXES];
    /// Elements before each axis.
    unsigned before[PAD_AXES];
    /// A `Padding`.
    unsigned mode;
    /// Bits of a constant.
    unsigned value;
    /// Bytes of an element: 1, 2 or 4.
    unsigned element;
    /// Elements of a row of the result per thread. If they have 16 bytes, the last axis has no padding and is a multiple of them.
    unsigned width;
};

} // namespace hipvit
