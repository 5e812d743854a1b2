// Arguments and geometry of scatter_elements.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Maximum number of axes. Fewer axes are preceded by extents of 1.
constexpr unsigned SCATTER_AXES = 6;
/// Threads per block of `scatter_elements`, an element of the result each.
constexpr unsigned SCATTER_ELEMENTS_THREADS = 256;

/// `scatter_elements`: an update goes to the element at its place, except for one axis, where `indices` has its index. A negative index counts
/// from the end. Indices beyond an end become the last or first one.
struct ScatterElementsArgs {
    /// T, f32 or i32 `from`, row-major.
    DEVICE_POINTER(const void) x;
    /// i32 `extents`, row-major.
    DEVICE_POINTER(const int) indices;
    /// As `x`, `extents`, row-major.
    DEVICE_POINTER(const void) updates;
    /// As `x`, `from`, row-major. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Extents of x. At least those of the indices, except for the axis.
    unsigned from[SCATTER_AXES];
    /// Extents of the indices.
    unsigned extents[SCATTER_AXES];
    /// Index of the axis.
    unsigned axis;
    /// 0: an update replaces its element; 1: it is added; 2: it is a factor; 3: the larger one stays; 4: the smaller one.
    unsigned reduction;
    /// 0: elements are T; 1: f32; 2: i32.
    unsigned kind;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
