// Arguments and geometry of write_rows.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `write_rows`.
constexpr unsigned WRITE_ROWS_THREADS = 256;

/// `write_rows`: the elements of each image replace those at its slot of `out`, which x has elsewhere. A slot beyond an end writes nothing.
struct WriteRowsArgs {
    /// T `[places, each]`. Copied to `out`, unless both are one buffer.
    DEVICE_POINTER(const void) x;
    /// T `[images, stride]`, of which the last `each` columns are written.
    DEVICE_POINTER(const void) rows;
    /// i32 `[images]`: the slots, which differ.
    DEVICE_POINTER(const int) slots;
    /// T `[places, each]`. May be `x`.
    DEVICE_POINTER(void) out;
    /// Elements of an image, at least 1.
    unsigned each;
    /// Elements from one image of `rows` to the next, at least `each`.
    unsigned stride;
    /// Number of images.
    unsigned images;
    /// Number of slots.
    unsigned places;
    /// 1 if elements of `x` are copied to the other places.
    unsigned copies;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
