// Arguments and geometry of sample.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `sample`.
constexpr unsigned SAMPLE_THREADS = 1024;

/// `sample`: chooses a token of each row of logits by a random number.
struct SampleArgs {
    /// T or f32 `[rows, length]`.
    DEVICE_POINTER(const void) logits;
    /// f32 `[rows, 4]`: temperature, top p, and two parts of 16 bits of the random number, as fractions.
    DEVICE_POINTER(const float) rules;
    /// i32 `[rows]`: logits that are considered, or 0 for all.
    DEVICE_POINTER(const int) top_k;
    /// As `logits`, `[rows]`: the chosen logits.
    DEVICE_POINTER(void) values;
    /// i32 `[rows]`: the chosen tokens.
    DEVICE_POINTER(int) tokens;
    /// Number of rows.
    unsigned rows;
    /// Logits of a row, at most 2²².
    unsigned length;
    /// 0: logits are T; 1: f32.
    unsigned kind;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
