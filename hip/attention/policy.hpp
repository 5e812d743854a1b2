// Policies of attention: what an entry does beside softmax(scale · Q·Kᵀ + mask) · V. A policy is made for each block, of the entry's
// arguments and the block's head.
//
//   Args, attention(args)  the entry's arguments, and those of attention in them
//   HAS_BIAS               a bias is added to the scores: `rows`, `query_stride`
//   ROTATES                keys, and queries if `rotates_queries`, are rotated in LDS: rotate_rows
//   STATISTICS             statistics of the softmax are written to `statistics`
//   SCORES, ADDS, MASKS    a pattern changes the scores, adds to them, and hides keys: pattern.hpp
//   LOG_SUM_EXP            ln Σ e^s is written to `sums`, if they are not null
#pragma once
#include "attention.h"
#include "rotate.hpp"
#include "vec128.hpp"

namespace hipvit {

// What most policies do not do.
struct WithoutPattern {
    static constexpr bool SCORES = false, ADDS = false, MASKS = false, LOG_SUM_EXP = false;
    // Whether every query of the block sees all keys of a tile, as far as a pattern says.
    static HIPVIT_DEVICE bool is_visible(u32) { return true; }
};

template <class T> struct PlainPolicy : WithoutPattern {
    using Args = AttentionArgs;
    static constexpr bool HAS_BIAS = false, ROTATES = false, STATISTICS = false;

    static HIPVIT_DEVICE const AttentionArgs &attention(const Args &a) { return a; }
    HIPVIT_DEVICE PlainPolicy(const Args &, u32) {}
};

template <class T> struct BiasPolicy : WithoutPattern {
    using Args = AttentionBiasArgs;
    static constexpr bool HAS_BIAS = true, ROTATES = false, STATISTICS = false;
    const T *rows;    // of the head, one per query
    u32 query_stride; // elements between them

    static HIPVIT_DEVICE const AttentionArgs &attention(const Args &a) { return a.attention; }
    HIPVIT_DEVICE BiasPolicy(const Args &a, u32 head) : rows((const T *)a.bias + head * a.head), query_stride(a.query) {}
};

template <class T> struct StatisticsPolicy : WithoutPattern {
    using Args = AttentionStatisticsArgs;
    static constexpr bool HAS_BIAS = true, ROTATES = false, STATISTICS = true;
    const T *rows; // as BiasPolicy's; null without a bias
    u32 query_stride;
    float *statistics; // of the first head of the first image

    static HIPVIT_DEVICE const AttentionArgs &attention(const Args &a) { return a.scores.attention; }
    HIPVIT_DEVICE StatisticsPolicy(const Args &a, u32 head)
        : rows(a.scores.bias ? (const T *)a.scores.bias + head * a.scores.head : nullptr), query_stride(a.scores.query),
          statistics(a.statistics) {}
};

// Rotates in LDS, as an asynchronous copy bypasses the registers: rotation costs no more than its own pass over the tile, and one more
// barrier.
template <class T> struct RotationPolicy : WithoutPattern {
    using Args = AttentionRopeArgs;
    static constexpr bool HAS_BIAS = false, ROTATES = true, STATISTICS = false;
    const T *table;   // of the head
    u32 token_stride; // elements between tokens of the table
    u32 first_token;  // that is rotated
    bool halves, rotates_queries;

    static HIPVIT_DEVICE const AttentionArgs &attention(const Args &a) { return a.attention; }
    HIPVIT_DEVICE RotationPolicy(const Args &args, u32 head) : RotationPolicy(args.rope, head, args.attention.heads) {}
    HIPVIT_DEVICE RotationPolicy(const RopeArgs &a, u32 head, u32 heads)
        : table((const T *)a.table + u64(head % a.table_heads) * a.head_dim), token_stride(a.table_heads * a.head_dim),
          first_token(a.first), halves(a.halves), rotates_queries(a.heads > heads) {}

    static HIPVIT_DEVICE void rotate_pair(T &first, T &second, T cosine, T sine) {
        float a = to_float(first), b = to_float(second);
        rotate(a, b, to_float(cosine), to_float(sine));
        first = from_float<T>(a), second = from_float<T>(b);
    }

    // Rotates the rows of COUNT tokens from token `first` on, of `d` channels each; tokens from `tokens` on do not exist. Element
    // (row, column) is at(row, column). Called by THREADS threads.
    template <int D, int COUNT, int THREADS, class At>
    HIPVIT_DEVICE void rotate_rows(u32 thread, u32 first, u32 tokens, u32 d, const At &at) const {
        const u32 half = d / 2;
        const auto row_of = [&](u32 row, const T *&angles) {
            const u32 token = first + row;
            angles = table + u64(token - first_token) * token_stride;
            return token >= first_token && token < tokens;
        };
        if (half % VEC<T> == 0 && aligned(table, VEC128_BYTES)) {
            constexpr u32 VECS = D / 2 / VEC<T>;
#pragma unroll 1
            for (u32 i = opaque(thread); i < COUNT * VECS; i += THREADS) { // keeps no address for the next tile
                // Halves of rows four apart are in different banks where four threads share a row.
                const u32 line = i / VECS, column = i % VECS * VEC<T>;
                const u32 row = halves ? (line & ~7u) | (line & 1) << 2 | (line >> 1 & 3) : line;
                const T *angles;
                if (column >= half || !row_of(row, angles)) continue;
                T *const low = at(row, halves ? column : 2 * column);
                T *const high = at(row, halves ? column + half : 2 * column + VEC<T>);
                const auto vec_at = [](const T *at) { return Vec<T>{*reinterpret_cast<const Vec128 *>(at)}; };
                const Vec<T> cosine = vec_at(angles + column), sine = vec_at(angles + half + column);
                Vec<T> both[2] = {vec_at(low), vec_at(high)};
                if (halves) {
#pragma unroll
                    for (u32 p = 0; p < VEC<T>; ++p)
                        rotate_pair(both[0].element[p], both[1].element[p], cosine.element[p], sine.element[p]);
                } else {
#pragma unroll
                    for (u32 p = 0; p < VEC<T>; ++p) {
                        T *const pair = both[2 * p / VEC<T>].element + 2 * p % VEC<T>;
                        rotate_pair(pair[0], pair[1], cosine.element[p], sine.element[p]);
                    }
                }
                *reinterpret_cast<Vec128 *>(low) = both[0].whole;
                *reinterpret_cast<Vec128 *>(high) = both[1].whole;
            }
        } else {
#pragma unroll 1
            for (u32 i = thread; i < COUNT * (D / 2); i += THREADS) {
                const u32 row = i / (D / 2), pair = i % (D / 2);
                const T *angles;
                if (pair >= half || !row_of(row, angles)) continue;
                T *const low = at(row, halves ? pair : 2 * pair);
                T *const high = at(row, halves ? pair + half : 2 * pair + 1);
                rotate_pair(*low, *high, angles[pair], angles[half + pair]);
            }
        }
    }
};

} // namespace hipvit
