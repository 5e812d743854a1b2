// Arguments and geometry of search.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block.
constexpr unsigned SEARCH_THREADS = 256;
/// Maximum number of queries of `search_scores`.
constexpr unsigned SEARCH_QUERIES = 4;
/// Rows that a wave of `search_scores` multiplies at once.
constexpr unsigned SEARCH_ROWS = 4;
/// Scores per block of `search_best`, and candidates that `search_merge` sorts at once. A power of two.
constexpr unsigned SEARCH_PART = 2048;
/// Maximum number of parts.
constexpr unsigned SEARCH_PARTS = 1024;
/// Maximum number of rows that are kept per query.
constexpr unsigned SEARCH_KEPT = 1024;

/// `search_scores`: inner products of rows with a few queries.
struct SearchScoresArgs {
    /// T `[rows, width]`.
    DEVICE_POINTER(const void) x;
    /// T `[queries, width]`.
    DEVICE_POINTER(const void) query;
    /// f32 `[queries, rows]`. Aliases no operand.
    DEVICE_POINTER(float) scores;
    /// Number of rows.
    unsigned rows;
    /// Values of a row.
    unsigned width;
    /// Number of queries, at most [`SEARCH_QUERIES`].
    unsigned queries;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

/// `search_best`: the keys of each part that are above the last kept key, at most `kept` of them. A key is a score, then the complement of a
/// row, as 64 bits. Larger keys are better. NaN and absent rows have the key 0.
struct SearchBestArgs {
    /// f32 `[queries, rows]`.
    DEVICE_POINTER(const float) scores;
    /// f32 `[rows]`, added to the scores. May be null.
    DEVICE_POINTER(const float) offsets;
    /// Kept keys `[queries, kept]`, in descending order.
    DEVICE_POINTER(const unsigned long long) best;
    /// Found keys `[queries, parts, kept]`, in any order. Aliases no operand.
    DEVICE_POINTER(unsigned long long) found;
    /// Number of found keys `[queries, parts]`. Aliases no operand.
    DEVICE_POINTER(unsigned) counts;
    /// Number of rows.
    unsigned rows;
    /// Number of the first row.
    unsigned first;
    /// Number of queries.
    unsigned queries;
    /// Keys that are kept per query, at most [`SEARCH_KEPT`].
    unsigned kept;
};

/// `search_merge`: merges the found keys of all parts into the kept keys.
struct SearchMergeArgs {
    /// Kept keys `[queries, kept]`, in descending order.
    DEVICE_POINTER(unsigned long long) best;
    /// Found keys `[queries, parts, kept]`.
    DEVICE_POINTER(const unsigned long long) found;
    /// Number of found keys `[queries, parts]`.
    DEVICE_POINTER(const unsigned) counts;
    /// Number of queries.
    unsigned queries;
    /// Number of parts, at most [`SEARCH_PARTS`].
    unsigned parts;
    /// Keys that are kept per query.
    unsigned kept;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
