// Arguments of rope.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// `rope`: rotates pairs of channels, in place.
struct RopeArgs {
    /// T `[images, tokens, channels]`, whose first `heads` · `head_dim` channels are rotated from token `first` on.
    DEVICE_POINTER(void) x;
    /// T `[tokens - first, table_heads, head_dim]`: cosines of a head's pairs, then their sines. Aliases nothing.
    DEVICE_POINTER(const void) table;
    /// Images in the batch.
    unsigned images;
    /// Tokens of an image.
    unsigned tokens;
    /// The first rotated token, less than `tokens`.
    unsigned first;
    /// Channels of a token.
    unsigned channels;
    /// Number of rotated heads, queries and keys together.
    unsigned heads;
    /// Channels of a head, even.
    unsigned head_dim;
    /// Heads of the table: head h uses h mod `table_heads`.
    unsigned table_heads;
    /// 1: channel c is rotated with c + `head_dim` / 2; 0: 2c with 2c + 1.
    unsigned halves;
};

} // namespace hipvit
