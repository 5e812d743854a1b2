// Arguments and geometry of gather.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `gather`.
constexpr unsigned GATHER_THREADS = 256;

/// `gather`: slice i of `out` is the slice of x at index i of `indices`. A negative index counts from the end. Indices beyond an end become the last or first one.
struct GatherArgs {
    /// Elements of `element` bytes, `[outer, extent, inner]`.
    DEVICE_POINTER(const void) x;
    /// i32 `[count]`.
    DEVICE_POINTER(const int) indices;
    /// Elements of `element` bytes, `[outer, count, inner]`. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Extents before the axis.
    unsigned outer;
    /// Extent of the axis, at least 1.
    unsigned extent;
    /// Extents after the axis.
    unsigned inner;
    /// Number of indices.
    unsigned count;
    /// Bytes of an element: 1, 2 or 4.
    unsigned element;
    /// Elements of a slice per thread. If they have 16 bytes, `inner` is a multiple of them.
    unsigned width;
};

} // namespace hipvit
