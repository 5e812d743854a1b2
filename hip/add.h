// Arguments of add.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `add`: out = factor · gamma · x + y.
struct AddArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[channels]`. May be null: 1.
    DEVICE_POINTER(const void) gamma;
    /// T `[y_rows, channels]`: row r of the output takes row r mod `y_rows`. May be null: 0.
    DEVICE_POINTER(const void) y;
    /// T `[rows, channels]`. May alias `x`; may alias `y` if `y_rows` = `rows`.
    DEVICE_POINTER(void) out;
    /// Rows of `x` and `out`.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// Rows of `y`; at least 1 unless `y` is null.
    unsigned y_rows;
    /// Multiplies `x`.
    float factor;
};

} // namespace hipvit
