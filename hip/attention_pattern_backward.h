// Arguments of the backward pass of attention with a pattern, whose functions src/kernels/pattern_attention generates.
#pragma once
#include "attention_backward.h"
#include "attention_pattern.h"

namespace hipvit {

/// Threads of a block of `attention_pattern_seen` and `attention_pattern_gradient`.
constexpr unsigned PATTERN_THREADS = 256;
/// Queries and keys of a tile of `seen`.
constexpr unsigned PATTERN_TILE = 16;

/// The pattern in a backward pass.
struct AttentionPatternBackward {
    /// What its functions read.
    AttentionPattern pattern;
    /// What the mask shows, by tiles of 16 queries and 16 keys: u32 `[seen_images, seen_heads, words, 2]`. The words are of each tile of
    /// queries, 32 tiles of keys in each, then of each tile of keys, 32 tiles of queries in each. The first u32 has a bit for each tile
    /// in which a query sees a key, the second one for each tile in which every query sees every key. Null if the pattern has no mask.
    DEVICE_POINTER(void) seen;
    /// Images of `seen`: 1 if the mask is the same for all images.
    unsigned seen_images;
    /// Heads of `seen`: 1 if the mask is the same for all heads.
    unsigned seen_heads;
};

/// `attention_pattern_seen`: writes `seen` of `AttentionPatternBackward`.
struct AttentionPatternSeenArgs {
    /// The pattern.
    AttentionPatternBackward pattern;
};

/// `attention_pattern_kv`: the gradients of keys and values.
struct AttentionPatternKvArgs {
    /// Arguments of the derivative itself. Its visibility is unbounded, without a key mask and bias.
    AttentionBackwardKvArgs attention;
    /// The pattern.
    AttentionPatternBackward pattern;
};

/// `attention_pattern_q`: the gradient of queries.
struct AttentionPatternQArgs {
    /// Arguments of the derivative itself. Its visibility is unbounded, without a key mask and bias.
    AttentionBackwardQArgs attention;
    /// The pattern.
    AttentionPatternBackward pattern;
};

/// `attention_pattern_load_<load>`: the gradient of what one load of a captured tensor reads, for each head, query and key.
struct AttentionPatternLoadArgs {
    /// Arguments of the derivative itself, with `partial`.
    AttentionBackwardBiasArgs attention;
    /// The pattern.
    AttentionPatternBackward pattern;
    /// Number of the load.
    unsigned load;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

/// First stage of `attention_pattern_gradient`: clears `sums` and `largest`.
constexpr unsigned GRADIENT_CLEAR = 0;
/// Adds up the chunks of `partial` in its first one, and finds `largest`.
constexpr unsigned GRADIENT_LARGEST = 1;
/// Adds what a load reads to `sums`.
constexpr unsigned GRADIENT_ADD = 2;
/// Writes `out`.
constexpr unsigned GRADIENT_STORE = 3;

/// `attention_pattern_gradient`: the gradient of a captured tensor, in stages. An element gets the sum over the scores that read it, in
/// fixed point, so that the order does not matter.
struct AttentionPatternGradientArgs {
    /// What the pattern's functions read.
    AttentionPattern pattern;
    /// f32 `[chunks, heads, queries, keys]`: the results of `attention_pattern_load_<load>`.
    DEVICE_POINTER(float) partial;
    /// i64 `[elements]`.
    DEVICE_POINTER(unsigned long long) sums;
    /// Bits of the largest absolute value in `partial`.
    DEVICE_POINTER(unsigned) largest;
    /// T `[elements]`.
    DEVICE_POINTER(void) out;
    /// Chunks of `partial`.
    unsigned chunks;
    /// Images whose gradients differ: 1, or as many as chunks.
    unsigned images;
    /// Elements of the tensor.
    unsigned elements;
    /// Number of the load.
    unsigned load;
    /// One of the stages above.
    unsigned stage;
    /// Scores that may read the same element, of all loads of the tensor; less than 2³¹.
    unsigned summands;
};

} // namespace hipvit
