// Arguments and geometry of top_k.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `top_k`, an element each.
constexpr unsigned TOP_K_THREADS = 256;

/// `top_k`: the k largest or smallest elements of each row in order, and their indices. Of equal elements, the first one comes first. NaN
/// counts as the largest element.
struct TopKArgs {
    /// T `[rows, length]`.
    DEVICE_POINTER(const void) x;
    /// T `[rows, k]`. Aliases no operand.
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
};

} // namespace hipvit
