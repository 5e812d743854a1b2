// Arguments of attention_float8.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// There are entries for heads of multiples of so many channels, up to the largest.
constexpr unsigned ATTENTION_FLOAT8_HEAD_STEP = 32, ATTENTION_FLOAT8_LARGEST_HEAD = 128;

/// Channels that a head has a multiple of; bytes that rows are aligned to.
constexpr unsigned ATTENTION_FLOAT8_CHANNELS = 16;

/// `attention_<D>_float8`: out = softmax(scale · Q·Kᵀ) · V · value_scale of queries, keys and values in E4M3 (include/float8.hpp). Head h of
/// token n of image b begins at element b · `*_image` + n · `*_token` + h · `head_dim` of `q`, `k`, `v` and `out`. The code object has
/// the waves and queries of a block as `attention.h` says.
struct AttentionFloat8Args {
    /// Bytes, `queries` tokens per image, aligned to 16 bytes.
    DEVICE_POINTER(const void) q;
    /// Bytes, `keys` tokens per image, aligned to 16 bytes.
    DEVICE_POINTER(const void) k;
    /// Bytes, `keys` tokens per image, aligned to 16 bytes.
    DEVICE_POINTER(const void) v;
    /// T, or bytes, `queries` tokens per image, aligned to 16 elements. Aliases no input.
    DEVICE_POINTER(void) out;
    /// Elements between images of `q`, a multiple of 16; 0: one image's serve all.
    unsigned long long q_image;
    /// Elements between images of `k`, a multiple of 16; 0: one image's serve all.
    unsigned long long k_image;
    /// Elements between images of `v`, a multiple of 16; 0: one image's serve all.
    unsigned long long v_image;
    /// Elements between images of `out`, a multiple of 16.
    unsigned long long out_image;
    /// Elements between tokens of `q`, a multiple of 16.
    unsigned q_token;
    /// Elements between tokens of `k`, a multiple of 16.
    unsigned k_token;
    /// Elements between tokens of `v`, a multiple of 16.
    unsigned v_token;
    /// Elements between tokens of `out`, a multiple of 16.
    unsigned out_token;
    /// Images in the batch.
    unsigned images;
    /// Heads of an image.
    unsigned heads;
    /// Queries of a head.
    unsigned queries;
    /// Keys, and values, of a head.
    unsigned keys;
    /// Channels of a head, at most the entry's D, a multiple of 16.
    unsigned head_dim;
    /// Multiplies Q·Kᵀ of the E4M3 numbers: positive, the steps of queries and keys included.
    float scale;
    /// Multiplies the result: the step of values.
    float value_scale;
    /// 0: `out` is T. Otherwise `out` is E4M3 of the result, rounded to T, times this.
    float float8_factor;
};

} // namespace hipvit
