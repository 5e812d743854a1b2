// Arguments and geometry of pool.
#pragma once
#include "device_pointer.h"
#include "vec128.h"

namespace hipvit {

/// Vec128s of channels per block.
constexpr unsigned POOL_VECS = 32;
/// Slices of the tokens: the threads of one vec128 share them out.
constexpr unsigned POOL_SLICES = 8;

/// Pooling mode, the `mode` of [`PoolArgs`].
enum class PoolMode : unsigned {
    /// The token `first`.
    Token,
    /// The mean of the tokens from `first` on.
    Mean,
    /// The maximum of the tokens from `first` on.
    Max,
};

/// `pool`: reduces an image's tokens to one vector.
struct PoolArgs {
    /// T `[images, tokens, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[images, channels]`.
    DEVICE_POINTER(void) out;
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
