// Arguments and geometry of top_k.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `top_k`.
constexpr unsigned TOP_K_THREADS = 256;

/// Threads per block of `top_k_few`.
constexpr unsigned TOP_K_FEW_THREADS = 1024;

/// Neighbouring threads of `top_k_few` whose elements have one maximum.
constexpr unsigned TOP_K_GROUP = 4;

/// Maximum elements that a block of `top_k_few` takes of its row.
constexpr unsigned TOP_K_FEW = 64;

/// Minimum length of a row of `top_k_few`, of which `TOP_K_FEW` groups of threads have an element.
constexpr unsigned TOP_K_LONG = 2048;

/// Elements in LDS of which a block takes few.
constexpr unsigned TOP_K_CANDIDATES = 1024;

/// `top_k`, and `top_k_few` for `k` up to `TOP_K_FEW` and `length` from `TOP_K_LONG` on: the k largest or smallest elements of each row in order, and their indices. Equal elements are ordered by their index.
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
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
