// Arguments and geometry of the backward pass of attention.
#pragma once
#include "attention.h"
#include "device_pointer.h"
#include "visibility.h"

namespace hipvit {

/// Shift of the rows of a tile in the u32 global `<entry>_block` of the code object: rows that a block holds +
/// (rows of a tile << this) + (waves << `ATTENTION_BACKWARD_WAVES_SHIFT`). They depend on the entry and the GPU.
constexpr unsigned ATTENTION_BACKWARD_TILE_SHIFT = 10;
/// Shift of the waves of a block, see `ATTENTION_BACKWARD_TILE_SHIFT`.
constexpr unsigned ATTENTION_BACKWARD_WAVES_SHIFT = 20;

/// Operands of the kernels of the backward pass. Head h of token n of image b begins at element
/// b · `*_image` + n · `*_token` + h · `head_dim` of `q`, `k`, `v` and `dy`.
struct AttentionBackwardOperands {
    /// T, `queries` tokens per image.
    DEVICE_POINTER(const void) q;
    /// T, `keys` tokens per image.
    DEVICE_POINTER(const void) k;
    /// T, `keys` tokens per image.
    DEVICE_POINTER(const void) v;
    /// T, gradient of the forward pass's result, `queries` tokens per image.
    DEVICE_POINTER(const void) dy;
    /// T, the same for all images: the bias of head h, query i and key j is element h · `bias_head` + i · `bias_query` + j. Null without
    /// a bias.
    DEVICE_POINTER(const void) bias;
    /// f32 `[images, heads, queries, 2]`, aligned to 8 bytes: the results of `attention_backward_rows`.
    DEVICE_POINTER(const float) rows;
    /// The keys that a query attends to, of those from `first_key` on.
    Visibility visible;
    /// Elements between images of `q`; 0: all images share one.
    unsigned long long q_image;
    /// Elements between images of `k`.
    unsigned long long k_image;
    /// Elements between images of `v`.
    unsigned long long v_image;
    /// Elements between images of `dy`.
    unsigned long long dy_image;
    /// Elements between heads of `bias`.
    unsigned long long bias_head;
    /// Elements between queries of `bias`.
    unsigned bias_query;
    /// Elements between tokens of `q`.
    unsigned q_token;
    /// Elements between tokens of `k`.
    unsigned k_token;
    /// Elements between tokens of `v`.
    unsigned v_token;
    /// Elements between tokens of `dy`.
    unsigned dy_token;
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
    /// The first key that queries attend to. The gradients of earlier keys and their values are 0.
    unsigned first_key;
    /// Factor of Q·Kᵀ.
    float scale;
};

/// `attention_backward_<D>_kv`, and `attention_backward_<D>_kv_bias` with a bias: the gradients of keys and values.
struct AttentionBackwardKvArgs {
    /// Operands.
    AttentionBackwardOperands operands;
    /// T, with the strides of `k`. Aliases no operand.
    DEVICE_POINTER(void) dk;
    /// T, with the strides of `v`. Aliases no operand.
    DEVICE_POINTER(void) dv;
};

/// `attention_backward_<D>_q`, and `attention_backward_<D>_q_bias` with a bias: the gradient of queries.
struct AttentionBackwardQArgs {
    /// Operands.
    AttentionBackwardOperands operands;
    /// T, with the strides of `q`. Aliases no operand. Not written if there is `partial`.
    DEVICE_POINTER(void) dq;
    /// f32 `[images, queries, heads, head_dim]`: the gradient of queries that all images share is the sum over the images. Null if each
    /// image has its own queries.
    DEVICE_POINTER(float) partial;
};

/// `attention_backward_<D>_bias`: the gradient of the bias, which is a sum over the images.
struct AttentionBackwardBiasArgs {
    /// Operands.
    AttentionBackwardOperands operands;
    /// T, with the strides of `bias`. Aliases no operand. Not written if there is `partial`.
    DEVICE_POINTER(void) dbias;
    /// f32 `[⌈images / chunk⌉, heads, queries, keys]`: sums over `chunk` images each. Null if `chunk` is the number of images.
    DEVICE_POINTER(float) partial;
    /// Images that a block adds up.
    unsigned chunk;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
