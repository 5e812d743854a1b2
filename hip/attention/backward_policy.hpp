// Policies of attention's backward pass: how a score becomes the exponent of a probability. A policy is made for each block and image.
//
//   IDENTITY                   the score is s: the functions are not called
//   score(s, query, key)       the final score, of s = scale · q·k
//   derivative(s, query, key)  its derivative with respect to s
//
// Both are called for queries and keys that do not exist too.
#pragma once
#include "attention_backward.h"
#include "device.hpp"

namespace hipvit {

template <class T> struct PlainScore {
    static constexpr bool IDENTITY = true;

    HIPVIT_DEVICE PlainScore(const AttentionBackwardOperands &, u32, u32) {}
};

template <class T> struct BiasedScore {
    static constexpr bool IDENTITY = false;
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
