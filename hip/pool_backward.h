// Arguments and geometry of pool_backward.
#pragma once
#include "device_pointer.h"
#include "pool.h"

namespace hipvit {

/// `pool_backward`: the gradient of an image's tokens from that of the pooled vector.
struct PoolBackwardArgs {
    /// T `[images, tokens, channels]`. Only read for a maximum; null otherwise.
    DEVICE_POINTER(const void) x;
    /// T `[images, channels]`.
    DEVICE_POINTER(const void) dy;
    /// T `[images, tokens, channels]`. Aliases no input.
    DEVICE_POINTER(void) dx;
    /// Images in the batch.
    unsigned images;
    /// Tokens of an image.
    unsigned tokens;
    /// Channels of a token.
    unsigned channels;
    /// One of [`PoolMode`].
    unsigned mode;
    /// The pooled token, or the first pooled token; less than `tokens`.
    unsigned first;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
