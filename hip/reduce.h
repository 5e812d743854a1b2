// Arguments and geometry of reduce.
#pragma once
#include "device_pointer.h"
#include "row.h"

namespace hipvit {

/// Columns that a block of `reduce_columns` reduces.
constexpr unsigned REDUCE_COLUMNS = 32;
/// Slices of the reduced axis in a block of `reduce_columns`, which are combined through LDS.
constexpr unsigned REDUCE_SLICES = 8;

/// The number that `reduce` computes.
enum class Reduction : unsigned {
    /// Σ x.
    Sum,
    /// Σ x / length.
    Mean,
    /// The largest element.
    Max,
    /// The smallest element.
    Min,
    /// Π x.
    Product,
    /// Σ |x|.
    L1,
    /// √Σ x².
    L2,
    /// Σ x².
    SumSquare,
    /// ln Σ eˣ.
    LogSumExp,
};

/// `reduce_rows`, `reduce_columns`: out = one number for all elements of the middle axis.
struct ReduceArgs {
    /// T `[outer, length, inner]`.
    DEVICE_POINTER(const void) x;
    /// T `[outer, inner]`. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Extent before the reduced axis.
    unsigned outer;
    /// Extent of the reduced axis.
    unsigned length;
    /// Extent after the reduced axis. 1 for `reduce_rows`.
    unsigned inner;
    /// A `Reduction`.
    unsigned kind;
    /// `reduce_rows`. 0: a row per wave; 1: a row per block.
    unsigned whole_block;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
