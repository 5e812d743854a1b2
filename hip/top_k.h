// Arguments and geometry of top_k.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `top_k`, an element each.
constexpr unsigned TOP_K_THREADS = 256;

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
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
