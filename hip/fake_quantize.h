// Arguments of fake_quantize.
#pragma once
#include "device_pointer.h"
#include "quantize_code.h"
#include "row.h"

namespace hipvit {

/// `fake_quantize`: out = the int8 level next to x, as a float, with the levels of each row. With a gradient: out = gradient, or 0 where x
/// is beyond the levels.
struct FakeQuantizeArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[rows, channels]`. May be null: out has the levels.
    DEVICE_POINTER(const void) gradient;
    /// T `[rows, channels]`. May alias `gradient`, or `x` if there is no gradient.
    DEVICE_POINTER(void) out;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// [`QuantizeCode::Range`], [`QuantizeCode::Magnitude`] or [`QuantizeCode::Fixed`].
    unsigned code;
    /// The scale for `Fixed`.
    float factor;
    /// The zero point for `Fixed`, 0 to 255.
    unsigned zero;
    /// 1: levels of weights, from −127 to 127 over ± the largest magnitude of each row. `code` is then `Magnitude`.
    unsigned weight;
    /// 0: a row per wave; 1: a row per block.
    unsigned whole_block;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
