// Arguments of the kernels before and after the backward pass of attention.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads of a block of `attention_backward_rows` and `attention_backward_sum`.
constexpr unsigned ATTENTION_BACKWARD_THREADS = 256;
/// Threads of `attention_backward_rows` that share a row.
constexpr unsigned ATTENTION_BACKWARD_LANES = 8;

/// `attention_backward_rows`: what a query's softmax contributes to the derivatives of its scores.
struct AttentionBackwardRowsArgs {
    /// T `[images, queries, heads, head_dim]`: the forward pass's result.
    DEVICE_POINTER(const void) o;
    /// T `[images, queries, heads, head_dim]`: its gradient.
    DEVICE_POINTER(const void) dy;
    /// f32 `[images, heads, queries, row_statistics]`: ln Σ e^s first, see `AttentionStatisticsArgs`.
    DEVICE_POINTER(const float) statistics;
    /// f32 `[images, heads, queries, 2]`: log₂ Σ e^s, or ∞ for a query without visible keys; and Σ o · dy.
    DEVICE_POINTER(float) rows;
    /// Images in the batch.
    unsigned images;
    /// Heads of an image.
    unsigned heads;
    /// Queries of a head.
    unsigned queries;
    /// Channels of a head.
    unsigned head_dim;
    /// Elements of `statistics` per query.
    unsigned row_statistics;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

/// `attention_backward_sum`: out = Σ x over the summands, in their order.
struct AttentionBackwardSumArgs {
    /// f32 `[summands, elements]`.
    DEVICE_POINTER(const float) x;
    /// T `[elements]`.
    DEVICE_POINTER(void) out;
    /// Number of summands.
    unsigned summands;
    /// Number of sums.
    unsigned elements;
};

} // namespace hipvit
