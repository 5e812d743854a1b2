// Arguments and tile constants of transpose.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Maximum number of rows of `x` in a block's tile.
constexpr unsigned TRANSPOSE_ROWS = 224;
/// Bytes of each of these rows in the tile.
constexpr unsigned TRANSPOSE_LINE = 128;
/// Threads per block.
constexpr unsigned TRANSPOSE_THREADS = 256;

/// `transpose`: out = gamma · xᵀ + y, or gamma · xᵀ · y, for each image. Columns of out beyond the rows of x take 0 instead of gamma · xᵀ.
struct TransposeArgs {
    /// T `[images, rows, columns]`.
    DEVICE_POINTER(const void) x;
    /// T `[rows]`. May be null: 1.
    DEVICE_POINTER(const void) gamma;
    /// T `[images, kept, width]`. May be null.
    DEVICE_POINTER(const void) y;
    /// T `[images, kept, width]`. May alias `y` only.
    DEVICE_POINTER(void) out;
    /// Images in the batch.
    unsigned images;
    /// Rows of an image of `x`.
    unsigned rows;
    /// Columns of an image of `x`.
    unsigned columns;
    /// Number of transposed columns, from the first on.
    unsigned kept;
    /// Columns of an image of `out`, at least `rows`.
    unsigned width;
    /// 1: multiplies by `y`; 0: adds `y`.
    unsigned multiply;
};

} // namespace hipvit
