// Arguments and geometry of column_sum.
#pragma once
#include "device_pointer.h"
#include "vec128.h"

namespace hipvit {

/// Vec128s of columns per block.
constexpr unsigned COLUMN_SUM_VECS = 16;
/// Slices of a chunk's rows: the threads of one vec128 share them out.
constexpr unsigned COLUMN_SUM_SLICES = 16;
/// Vec128s of columns per block of a total, whose few rows are long sums.
constexpr unsigned COLUMN_TOTAL_VECS = 4;
/// Slices of the rows of a total.
constexpr unsigned COLUMN_TOTAL_SLICES = 64;

/// Form of `column_sum`, the `stage` of [`ColumnSumArgs`].
enum class ColumnSumStage : unsigned {
    /// T to T, in one chunk.
    Whole,
    /// T to f32, a sum for each chunk.
    Partial,
    /// f32 to T, in one chunk.
    Total,
};

/// `column_sum`: sums of the rows of a matrix, for each chunk of its rows.
struct ColumnSumArgs {
    /// T, or f32 for a total, `[rows, columns]`.
    DEVICE_POINTER(const void) x;
    /// T, or f32 for partial sums, `[⌈rows / chunk⌉, columns]`. Does not alias `x`.
    DEVICE_POINTER(void) out;
    /// Rows of `x`.
    unsigned rows;
    /// Columns of both matrices.
    unsigned columns;
    /// Rows of a chunk, at least 1. All rows, unless the sums are partial.
    unsigned chunk;
    /// One of [`ColumnSumStage`]. The host selects the entry by it.
    unsigned stage;
};

} // namespace hipvit
