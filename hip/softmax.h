// Arguments of softmax.
#pragma once
#include "device_pointer.h"
#include "row.h"
#include "visibility.h"

namespace hipvit {

/// `softmax`: softmax of scale · x over the visible keys. Invisible keys become 0, and so does a row without visible keys.
/// `log_softmax`: its logarithm.
struct SoftmaxArgs {
    /// T `[images, heads, queries, keys]`.
    DEVICE_POINTER(const void) x;
    /// T `[images, heads, queries, keys]`. May alias `x`.
    DEVICE_POINTER(void) out;
    /// The keys that a query attends to.
    Visibility visible;
    /// Images in the batch.
    unsigned images;
    /// Heads of an image.
    unsigned heads;
    /// Queries of a head.
    unsigned queries;
    /// Keys of a head.
    unsigned keys;
    /// Factor of the scores.
    float scale;
    /// 0: a row per wave; 1: a row per block.
    unsigned whole_block;
    /// 1 for `log_softmax`.
    unsigned log;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
