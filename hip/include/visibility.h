// The keys that a query attends to: an argument of attention and softmax.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// No bound: a value of `left` or `right` of [`Visibility`].
constexpr int UNBOUNDED = 2147483647;

/// Keys that a query attends to. Key j is visible to query i if −left ≤ j − (i + diagonal) ≤ right and its `key_mask` is not 0.
/// Causal attention has right = 0, a sliding window has both bounds.
struct Visibility {
    /// u8 `[images, keys]`. May be null: no mask.
    DEVICE_POINTER(const unsigned char) key_mask;
    /// Position of query 0 among the keys.
    int diagonal;
    /// Number of visible keys before the query's position, or `UNBOUNDED`.
    int left;
    /// Number of visible keys after the query's position, or `UNBOUNDED`.
    int right;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
