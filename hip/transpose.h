// Arguments and tile constants of transpose.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Rows and columns of a block's tile.
constexpr unsigned TRANSPOSE_TILE = 64;
/// Threads per block.
constexpr unsigned TRANSPOSE_THREADS = 256;

/// `transpose`: out = gamma · xᵀ of each image, to which y is added or by which it is multiplied.
struct TransposeArgs {
    /// T `[images, rows, columns]`.
    DEVICE_POINTER(const void) x;
    /// T `[rows]`. May be null: 1.
    DEVICE_POINTER(const void) gamma;
    /// T `[images, columns, rows]`. May be null.
    DEVICE_POINTER(const void) y;
    /// T `[images, columns, rows]`. May alias `y`, and no other.
    DEVICE_POINTER(void) out;
    /// Images in the batch.
    unsigned images;
    /// Rows of an image of `x`.
    unsigned rows;
    /// Columns of an image of `x`.
    unsigned columns;
    /// 1: multiplied by `y`; 0: `y` is added.
    unsigned multiply;
};

} // namespace hipvit
