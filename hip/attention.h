// Arguments and geometry of attention.
#pragma once
#include "device_pointer.h"
#include "rope.h"
#include "visibility.h"

namespace hipvit {

// Calls X(D) for each head size that has entries, in ascending order.
#define HIPVIT_ATTENTION_HEAD_DIMS(X) X(32) X(64) X(80) X(96) X(128)

/// Shift of the waves in the u32 global `<entry>_block` of the code object: queries + (waves << `ATTENTION_WAVES_SHIFT`). The waves and
/// the queries of a block depend on the entry and the GPU.
constexpr unsigned ATTENTION_WAVES_SHIFT = 16;

/// Maximum number of blocks of `attention_<D>_split` per multiprocessor. With more, `attention_<D>` is faster.
constexpr unsigned ATTENTION_SPLIT_BLOCKS = 2;

/// `attention_<D>`, `attention_<D>_split`: out = softmax(scale · Q·Kᵀ + mask) · V. Head h of token n of image b begins at element
/// b · `*_image` + n · `*_token` + h · `head_dim` of `q`, `k`, `v` and `out`.
struct AttentionArgs {
    /// T, `queries` tokens per image.
    DEVICE_POINTER(const void) q;
    /// T, `keys` tokens per image.
    DEVICE_POINTER(const void) k;
    /// T, `keys` tokens per image.
    DEVICE_POINTER(const void) v;
    /// T, or bytes (see `float8_factor`), `queries` tokens per image. Aliases no input.
    DEVICE_POINTER(void) out;
    /// The keys that a query attends to. The output of a query without visible keys is 0.
    Visibility visible;
    /// Elements between images of `q`; 0: all images share one.
    unsigned long long q_image;
    /// Elements between images of `k`; 0: all images share one.
    unsigned long long k_image;
    /// Elements between images of `v`; 0: all images share one.
    unsigned long long v_image;
    /// Elements between images of `out`.
    unsigned long long out_image;
    /// Elements between tokens of `q`.
    unsigned q_token;
    /// Elements between tokens of `k`.
    unsigned k_token;
    /// Elements between tokens of `v`.
    unsigned v_token;
    /// Elements between tokens of `out`.
    unsigned out_token;
    /// Images in the batch.
    unsigned images;
    /// Heads of an image.
    unsigned heads;
    /// Queries of a head.
    unsigned queries;
    /// Keys of a head, and values.
    unsigned keys;
    /// Channels of a head, at most the entry's D.
    unsigned head_dim;
    /// Factor of Q·Kᵀ.
    float scale;
    /// 0: `out` is T. Otherwise `out` is E4M3 (include/float8.hpp) of the result, rounded to T, times this.
    float float8_factor;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

/// `attention_<D>_bias`: out = softmax(scale · Q·Kᵀ + bias + mask) · V. The bias of head h, query i and key j is element
/// h · `head` + i · `query` + j.
struct AttentionBiasArgs {
    AttentionArgs attention;
    /// T, the same for all images.
    DEVICE_POINTER(const void) bias;
    /// Elements between heads of `bias`.
    unsigned long long head;
    /// Elements between queries of `bias`.
    unsigned query;
    unsigned reserved;
};

/// `attention_<D>_stats`: attention with or without a bias, and statistics of each softmax.
struct AttentionStatisticsArgs {
    /// `bias` may be null: 0. `out` may be null: only the statistics are written.
    AttentionBiasArgs scores;
    /// f32 `[images, heads, queries, 3]`: ln Σ e^s over the visible keys' scores s = scale · q·k + bias, the largest probability, and
    /// the entropy −Σ p·ln p in nats. They are −∞, 0 and 0 for a query without visible keys.
    DEVICE_POINTER(float) statistics;
};

/// `attention_<D>_rope`: `attention_<D>` with queries and keys rotated as the kernel `rope` rotates them. If `rope.heads` is twice
/// `attention.heads`, both are rotated, otherwise only the keys. The rotated ones are not written: `rope.x` is not accessed.
struct AttentionRopeArgs {
    AttentionArgs attention;
    /// Has the images and the head size of `attention`, and as many tokens as it has keys.
    RopeArgs rope;
};

#ifdef HIPVIT_BINDGEN
// Becomes the array HEAD_DIMS.
#define HIPVIT_HEAD_DIM_ENUMERATOR(D) HEAD_DIM_##D = D,
enum class HeadDims : unsigned { HIPVIT_ATTENTION_HEAD_DIMS(HIPVIT_HEAD_DIM_ENUMERATOR) };
#endif

} // namespace hipvit
