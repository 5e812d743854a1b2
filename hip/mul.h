// Arguments of mul.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `mul`: out = x · y.
struct MulArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[y_rows, channels]`: row r of the output takes row r mod `y_rows`.
    DEVICE_POINTER(const void) y;
    /// T `[rows, channels]`. May alias `x`; may alias `y` if `y_rows` = `rows`.
    DEVICE_POINTER(void) out;
    /// Rows of `x` and `out`.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// Rows of `y`, at least 1.
    unsigned y_rows;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
