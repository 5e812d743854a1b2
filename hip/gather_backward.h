// Arguments and geometry of gather_backward.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `gather_backward`.
constexpr unsigned GATHER_BACKWARD_THREADS = 256;

/// Channels of a row per lane of `gather_backward`.
constexpr unsigned GATHER_BACKWARD_CHANNELS = 4;

/// `gather_backward`: row i of `out` is the sum of the slices of dy at the places where `indices` has i. A negative index counts from the end. Indices beyond an end become the last or first one.
struct GatherBackwardArgs {
    /// i32 `[count]`.
    DEVICE_POINTER(const int) indices;
    /// T `[count, inner]`.
    DEVICE_POINTER(const void) dy;
    /// T `[rows, inner]`. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Rows of `out`, at least 1.
    unsigned rows;
    /// Elements of a slice.
    unsigned inner;
    /// Number of indices.
    unsigned count;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
