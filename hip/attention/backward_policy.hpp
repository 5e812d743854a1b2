// Policies of attention's backward pass: how a score becomes the exponent of a probability. A policy is made for each block and image.
//
//   IDENTITY                   the score is s: the functions are not called
//   score(s, query, key)       the final score, of s = scale · q·k
//   derivative(s, query, key)  its derivative with respect to s, or another factor of the result
//   GUARDS                     the derivative may be infinite where a probability is 0
//   MASKS                      there is a mask besides the operands' visibility:
//   visible(query, key)        whether the query sees the key
//   seen<HOLDS_KEYS>(tile, word)  what the mask shows of 16 keys, or to 16 queries
//
// All but the last are called for queries and keys that do not exist too.
#pragma once
#include "attention_backward.h"
#include "device.hpp"

namespace hipvit {

// 32 tiles of 16 × 16 scores, a bit each: whether a query sees a key, and whether each sees all.
struct alignas(8) SeenTiles {
    u32 any, all;
};

template <class T> struct PlainScore {
    using Args = AttentionBackwardOperands;
    static constexpr bool IDENTITY = true, GUARDS = false, MASKS = false;

    HIPVIT_DEVICE PlainScore(const AttentionBackwardOperands &, u32, u32) {}
};

template <class T> struct BiasedScore {
    using Args = AttentionBackwardOperands;
    static constexpr bool IDENTITY = false, GUARDS = false, MASKS = false;
    const T *rows; // of the head, one per query
    u32 query_stride, last_query, last_key;

    HIPVIT_DEVICE BiasedScore(const AttentionBackwardOperands &a, u32, u32 head)
        : rows((const T *)a.bias + head * a.bias_head), query_stride(a.bias_query), last_query(a.queries - 1),
          last_key(a.keys - 1) {}
    HIPVIT_DEVICE float score(float s, u32 query, u32 key) const {
        const u32 row = query < last_query ? query : last_query, column = key < last_key ? key : last_key;
        return s + to_float(rows[u64(row) * query_stride + column]);
    }
    HIPVIT_DEVICE float derivative(float, u32, u32) const { return 1.0f; }
};

} // namespace hipvit
