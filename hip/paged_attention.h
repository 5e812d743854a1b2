// Arguments and geometry of paged_attention.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `paged_attention`.
constexpr unsigned PAGED_ATTENTION_THREADS = 128;

/// Threads per block of `paged_attention_few`.
constexpr unsigned PAGED_ATTENTION_FEW = 512;

/// Maximum heads of all rows of `paged_attention_few`: more blocks do not run at the same time.
constexpr unsigned PAGED_ATTENTION_FEW_HEADS = 256;

/// Maximum keys that one block of `paged_attention_few` takes alone: sharing them costs as much as a pass over them.
constexpr unsigned PAGED_ATTENTION_WHOLE = 256;

/// Minimum keys of a block, if blocks share the keys of a head.
constexpr unsigned PAGED_ATTENTION_SPAN = 128;

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
    /// f32 `[rows, heads, splits, head_dim + 2]`: sums of blocks, then their maxima, then their totals. Not accessed if `splits` is 1.
    DEVICE_POINTER(float) parts;
    /// u32 `[rows, heads]`: blocks that have written their parts. 0 before and after a launch.
    DEVICE_POINTER(unsigned) arrivals;
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
    /// Maximum blocks per head of a row, at least 1.
    unsigned splits;
    /// 1 for blocks of `PAGED_ATTENTION_FEW` threads, which `splits` above 1 need. 0 for `PAGED_ATTENTION_THREADS`.
    unsigned few;
};

} // namespace hipvit
