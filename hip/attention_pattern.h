// Arguments of attention with a pattern, whose score and mask src/kernels/pattern_attention generates.
#pragma once
#include "attention.h"

namespace hipvit {

/// Maximum number of captured tensors of a pattern.
constexpr unsigned PATTERN_TENSORS = 8;
/// Maximum number of extents of a captured tensor.
constexpr unsigned PATTERN_RANK = 4;
/// Maximum number of scalars of a pattern.
constexpr unsigned PATTERN_SCALARS = 8;

/// Tile of queries and keys that no query sees.
constexpr unsigned TILE_HIDDEN = 0;
/// Tile in which queries see some keys.
constexpr unsigned TILE_PARTIAL = 1;
/// Tile in which every query sees every key.
constexpr unsigned TILE_VISIBLE = 2;

/// What the functions of a pattern read.
struct AttentionPattern {
    /// Captured tensors: T or i32, row-major. Null beyond the last one.
    DEVICE_POINTER(const void) tensors[8];
    /// Extents of the captured tensors, outermost first.
    unsigned extents[8][4];
    /// Bytes of the elements of the captured tensors, for the host.
    unsigned element_bytes[8];
    /// Scalars: the bits of an f32 or i32.
    unsigned scalars[8];
    /// Heads of an image.
    unsigned heads;
    /// Queries of a head.
    unsigned queries;
    /// Keys of a head.
    unsigned keys;
    /// Images in the batch.
    unsigned images;
};

/// `attention_pattern`: out = softmax(f(scale · Q·Kᵀ) + mask) · V with the score and the mask of the code's pattern.
struct AttentionPatternArgs {
    /// Arguments of the attention itself. Its visibility is unbounded, and without a key mask.
    AttentionArgs attention;
    /// What score and mask read. Its extents are those of `attention`.
    AttentionPattern pattern;
    /// Kind of each tile of the block's queries and its keys: u8 `[tile_images, tile_heads, tiles of queries, tiles of keys]`. Null if the
    /// pattern has no mask.
    DEVICE_POINTER(unsigned char) tiles;
    /// Visible keys of each tile: a u32 for each thread, whose bits are the thread's scores. Null if the pattern has no mask, or addends.
    DEVICE_POINTER(unsigned) visible_keys;
    /// Addends to the scores of each tile: T for each of a thread's scores, −∞ for a hidden key. Null if the pattern has none.
    DEVICE_POINTER(void) addends;
    /// f32 `[images, heads, queries]`: ln Σ e^s over the visible keys' scores. May be null.
    DEVICE_POINTER(float) log_sum_exp;
    /// Images of `tiles`: 1 if mask and addends are the same for all images.
    unsigned tile_images;
    /// Heads of `tiles`: 1 if mask and addends are the same for all heads.
    unsigned tile_heads;
};

/// `attention_pattern_tiles`: writes `tiles`, `visible_keys` and `addends` of `AttentionPatternArgs`.
struct AttentionPatternTilesArgs {
    /// Arguments of the attention that reads the tiles.
    AttentionPatternArgs attention;
};

} // namespace hipvit
