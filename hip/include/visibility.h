// Which keys a query attends to: an argument of attention and softmax.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// `left` or `right` of [`Visibility`] without a bound.
constexpr int UNBOUNDED = 2147483647;

/// Key j is visible to query i if −left ≤ j − (i + diagonal) ≤ right and `key_mask` is not 0 for it. Causal: right = 0.
/// Sliding window: both finite.
struct Visibility {
    /// u8 `[images, keys]`. May be null: no mask.
    DEVICE_POINTER(const unsigned char) key_mask;
    /// Offset of the key that stands at a query's own position.
    int diagonal;
    /// Keys visible before that one, or `UNBOUNDED`.
    int left;
    /// Keys visible after that one, or `UNBOUNDED`.
    int right;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
