// Arguments of wire.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `wire`.
constexpr unsigned WIRE_THREADS = 256;
/// Elements of a piece that a block of `wire` copies.
constexpr unsigned WIRE_PART = 8192;
/// Maximum number of pieces of a launch of `wire`.
constexpr unsigned WIRE_PIECES = 32;

/// Elements that `wire` copies.
struct WirePiece {
    /// `[elements]`
    DEVICE_POINTER(const void) x;
    /// `[elements]`. Does not overlap any `x`.
    DEVICE_POINTER(void) out;
    /// Number of elements.
    unsigned elements;
    /// First part of the piece, which is a block of the grid. Ascending.
    unsigned first_part;
};

/// `wire`: out = x for several pieces of tensors, to a bucket that ranks exchange or back; rounded to bf16 for the way, if asked.
struct WireArgs {
    /// The pieces, of which the first `count` are used.
    WirePiece pieces[WIRE_PIECES];
    /// Number of pieces, at least 1.
    unsigned count;
    /// Bytes of an element of `x`, 2 or 4.
    unsigned from_bytes;
    /// Bytes of an element of `out`. Where it differs from `from_bytes`, 4 bytes are f32 and 2 are bf16.
    unsigned to_bytes;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
