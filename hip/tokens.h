// Arguments of tokens.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `tokens`: puts prefix tokens before an image's tokens, to which it adds a position table.
struct TokensArgs {
    /// T `[images, tokens, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[prefixes, channels]`. Null if `prefixes` is 0.
    DEVICE_POINTER(const void) prefix;
    /// T `[tokens, channels]`. May be null: 0.
    DEVICE_POINTER(const void) position;
    /// T `[images, prefixes + tokens, channels]`.
    DEVICE_POINTER(void) out;
    /// Images in the batch.
    unsigned images;
    /// Tokens of an image of `x`.
    unsigned tokens;
    /// Number of prefix tokens.
    unsigned prefixes;
    /// Channels of a token.
    unsigned channels;
};

} // namespace hipvit
