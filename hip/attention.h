// Arguments and geometry of attention.
#pragma once
#include "device_pointer.h"
#include "rope.h"
#include "visibility.h"

namespace hipvit {

// The head sizes that there are entries for, in ascending order: X(D) for each.
#define HIPVIT_ATTENTION_HEAD_DIMS(X) X(32) X(64) X(80) X(96) X(128)

/// The waves and the queries of a block depend on the entry and the GPU: the code object has them as the u32 global
/// `<entry>_block`, queries + (waves << `ATTENTION_WAVES_SHIFT`).
constexpr unsigned ATTENTION_WAVES_SHIFT = 16;

/// Blocks of `attention_<D>_split` per multiprocessor up to which it is faster than `attention_<D>`.
constexpr unsigned ATTENTION_SPLIT_BLOCKS = 2;

/// `attention_<D>`, `attention_<D>_split`: out = softmax(scale · Q·Kᵀ + mask) · V; `attention_<D>_bias` as
/// `AttentionBiasArgs`, `attention_<D>_rope` as `AttentionRopeArgs`, `attention_<D>_stats` as `AttentionStatisticsArgs`. Head h of
/// token n of image b begins at element
/// b · `*_image` + n · `*_token` + h · `head_dim` of `q`, `k`, `v` and `out`.
struct AttentionArgs {
    /// T, `queries` tokens per image.
    DEVICE_POINTER(const void) q;
    /// T, `keys` tokens per image.
    DEVICE_POINTER(const void) k;
    /// T, `keys` tokens per image.
    DEVICE_POINTER(const void) v;
    /// T, or bytes, `queries` tokens per image. Aliases no input.
    DEVICE_POINTER(void) out;
    /// Which keys a query attends to. The output of a query without visible keys is 0.
    Visibility visible;
    /// Elements between images of `q`; 0: one image's serve all.
    unsigned long long q_image;
    /// Elements between images of `k`; 0: one image's serve all.
    unsigned long long k_image;
    /// Elements between images of `v`; 0: one image's serve all.
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
    /// Keys, and values, of a head.
    unsigned keys;
    /// Channels of a head, at most the entry's D.
    unsigned head_dim;
    /// Multiplies Q·Kᵀ.
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

/// `attention_<D>_stats`: attention with a bias or none, and statistics of the softmax of each query of each head of each image.
struct AttentionStatisticsArgs {
    /// Its `bias` may be null. Its `out` too, if only the statistics are wanted.
    AttentionBiasArgs scores;
    /// f32 [images, heads, queries, 3]: ln Σ e^s over the visible keys' scores s = scale · q·k + bias, the largest probability, and
    /// the entropy −Σ p·ln p in nats. Of a query without visible keys −∞, 0 and 0.
    DEVICE_POINTER(float) statistics;
};

/// `attention_<D>_rope`: `attention_<D>` of the queries and keys that `rope` would leave, which are not written: `rope.x` is not
/// accessed. If `rope.heads` is twice `attention.heads` both are rotated, otherwise the keys alone.
struct AttentionRopeArgs {
    AttentionArgs attention;
    /// Of as many images, as many tokens as keys, and heads as large.
    RopeArgs rope;
};

#ifdef HIPVIT_BINDGEN
// Becomes the array HEAD_DIMS.
#define HIPVIT_HEAD_DIM_ENUMERATOR(D) HEAD_DIM_##D = D,
enum class HeadDims : unsigned { HIPVIT_ATTENTION_HEAD_DIMS(HIPVIT_HEAD_DIM_ENUMERATOR) };
#endif

} // namespace hipvit
