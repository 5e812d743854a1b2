// Arguments and geometry of token_scores.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `token_scores`.
constexpr unsigned TOKEN_SCORES_THREADS = 256;

/// Logits of a block of `token_scores`.
constexpr unsigned TOKEN_SCORES_PART = 2048;

/// `token_scores`: the logits or the logarithms of the probabilities, lowered for tokens that would repeat in a text.
struct TokenScoresArgs {
    /// T `[rows, vocabulary]`.
    DEVICE_POINTER(const void) logits;
    /// i32 `[rows, length]`: a text each, up to the first number below 0.
    DEVICE_POINTER(const int) tokens;
    /// f32 `[rows, vocabulary]`. Aliases no operand.
    DEVICE_POINTER(float) scores;
    /// Number of rows.
    unsigned rows;
    /// Logits of a row.
    unsigned vocabulary;
    /// Maximum tokens of a text.
    unsigned length;
    /// Number of tokens of sequences that may occur only once. 0 for no such rule.
    unsigned ngram;
    /// Divisor of the scores of tokens of the text. Those below 0 are multiplied.
    float penalty;
    /// 1 for the logarithms of the probabilities.
    unsigned log;
};

} // namespace hipvit
