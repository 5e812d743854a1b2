// Arguments and geometry of cum_sum.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `cum_sum`.
constexpr unsigned CUM_SUM_THREADS = 64;

/// `cum_sum`: running sums along the middle axis.
struct CumSumArgs {
    /// T, f32 or i32 `[outer, length, inner]`.
    DEVICE_POINTER(const void) x;
    /// As `x`. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Extents before the axis.
    unsigned outer;
    /// Extent of the axis.
    unsigned length;
    /// Extents after the axis.
    unsigned inner;
    /// 1: an element is not part of its own sum.
    unsigned exclusive;
    /// 1: the sums of the elements from each on.
    unsigned reverse;
    /// 0: elements are T; 1: f32; 2: i32.
    unsigned kind;
};

} // namespace hipvit
