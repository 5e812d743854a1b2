// Arguments and geometry of top_k.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `top_k`.
constexpr unsigned TOP_K_THREADS = 256;

/// Maximum elements that a block takes of a row of its own. At most `TOP_K_THREADS`.
constexpr unsigned TOP_K_FEW = 64;

/// Minimum length of a row of which a block takes few elements. At least `TOP_K_THREADS`.
constexpr unsigned TOP_K_LONG = 1024;

/// Elements in LDS of which a block takes few.
constexpr unsigned TOP_K_CANDIDATES = 1024;

/// `top_k`: the k largest or smallest elements of each row in order, and their indices. Equal elements are ordered by their index.
/// NaN counts as the largest element.
struct TopKArgs {
    /// T, f32 or i32 `[rows, length]`.
    DEVICE_POINTER(const void) x;
    /// As `x`, `[rows, k]`. Aliases no operand.
    DEVICE_POINTER(void) values;
    /// i32 `[rows, k]`. Aliases no operand.
    DEVICE_POINTER(int) indices;
    /// Number of rows.
    unsigned rows;
    /// Elements of a row.
    unsigned length;
    /// Elements to take, at most `length`.
    unsigned k;
    /// 1: the largest elements; 0: the smallest.
    unsigned largest;
    /// 0: elements are T; 1: f32; 2: i32.
    unsigned kind;
    /// 1: a block per row, for `k` up to `TOP_K_FEW` and `length` from `TOP_K_LONG` on; 0: a thread per element.
    unsigned few;
};

} // namespace hipvit
