// Arguments and geometry of paged_attention.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `paged_attention`.
constexpr unsigned PAGED_ATTENTION_THREADS = 128;

/// Threads per block of `paged_attention_few`.
constexpr unsigned PAGED_ATTENTION_FEW = 512;

/// Maximum blocks of `paged_attention_few`: more do not run at the same time.
constexpr unsigned PAGED_ATTENTION_FEW_BLOCKS = 256;

/// Maximum channels per head of `paged_attention`.
constexpr unsigned PAGED_ATTENTION_CHANNELS = 256;

/// Maximum lanes per key of `paged_attention`.
constexpr unsigned PAGED_ATTENTION_LANES = 16;

/// `paged_attention`: attention of one query per row over the first tokens of its pages.
struct PagedAttentionArgs {
    /// T `[rows, columns]`, of which the first are `[heads, head_dim]`.
    DEVICE_POINTER(const void) q;
    /// T `[places, 2, kv_heads, head_dim]`: keys, then values.
    DEVICE_POINTER(const void) cache;
    /// i32 `[rows, pages]`: the pages of each row. Numbers beyond an end become the first or last page.
    DEVICE_POINTER(const int) table;
    /// i32 `[rows]`: tokens that each query sees.
    DEVICE_POINTER(const int) lengths;
    /// T `[rows, heads, head_dim]`. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// Queries.
    unsigned rows;
    /// Heads of the queries, a multiple of `kv_heads`.
    unsigned heads;
    /// Heads of keys and values.
    unsigned kv_heads;
    /// Channels of a head, at most `PAGED_ATTENTION_CHANNELS`.
    unsigned head_dim;
    /// Rows of the cache, a multiple of `page`.
    unsigned places;
    /// Tokens of a page.
    unsigned page;
    /// Pages of a row of the table.
    unsigned pages;
    /// Lanes per key: a power of two, at most `PAGED_ATTENTION_LANES`.
    unsigned lanes;
    /// Factor of the scores.
    float scale;
    /// Columns of q, at least `heads · head_dim`.
    unsigned columns;
};

} // namespace hipvit
