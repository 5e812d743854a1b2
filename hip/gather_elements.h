// Arguments and geometry of gather_elements.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Maximum number of axes. Fewer axes are preceded by extents of 1.
constexpr unsigned GATHER_AXES = 6;
/// Threads per block of `gather_elements`, an element each.
constexpr unsigned GATHER_ELEMENTS_THREADS = 256;

/// `gather_elements`: an element of out is that of x at the same place, except for one axis, where `indices` has its index. A negative index
/// counts from the end. Indices beyond an end become the last or first one.
struct GatherElementsArgs {
    /// Elements of `element` bytes, `from`, row-major.
    DEVICE_POINTER(const void) x;
    /// i32 `extents`, row-major.
    DEVICE_POINTER(const int) indices;
    /// Elements of `element` bytes, `extents`, row-major. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Extents of x. At least those of the indices, except for the axis.
    unsigned from[GATHER_AXES];
    /// Extents of the indices.
    unsigned extents[GATHER_AXES];
    /// Index of the axis.
    unsigned axis;
    /// Bytes of an element: 1, 2 or 4.
    unsigned element;
};

} // namespace hipvit
