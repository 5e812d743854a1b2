// token_scores: the logits or the logarithms of the probabilities, lowered for tokens that would repeat in a text.
//
// Shapes: logits T [rows, vocabulary]; tokens i32 [rows, length]; scores f32 [rows, vocabulary]. All row-major.
// Alignment: any.
// Geometry: blocks of TOKEN_SCORES_THREADS, for TOKEN_SCORES_PART logits of a row each. A block marks those of its logits whose tokens the text has, or which
//   would end a sequence that the text has, in LDS, and then writes its scores. For logarithms, each block adds the exponentials of the whole row.
#include "token_scores.h"
#include "atomics.hpp"
#include "row_elements.hpp"
#include "wave.hpp"

using namespace hipvit;

struct TokenScoresShared {
    // A bit per logit.
    u32 seen[TOKEN_SCORES_PART / 32], excluded[TOKEN_SCORES_PART / 32], padding;
    float reduced[TOKEN_SCORES_THREADS / WAVE];
};

// Returns true if the `tokens - 1` tokens before `end` are the last ones of the text.
HIPVIT_DEVICE bool repeats(const int *text, u32 length, u32 end, u32 tokens) {
    for (u32 back = 1; back < tokens; ++back)
        if (text[end - back] != text[length - back]) return false;
    return true;
}

// The logarithm of the sum of the exponentials of a row is `largest` plus the result.
template <class T> HIPVIT_DEVICE float log_sum(const T *row, u32 length, float &largest, TokenScoresShared &shared) {
    const RowGroup<TOKEN_SCORES_THREADS> group{true, shared.reduced};
    float own = -infinity(), sum = 0.0f;
    for_each_element<TOKEN_SCORES_THREADS, 4>(row, length, [&](u32, T x) { own = larger(own, to_float(x)); });
    largest = group.reduce<Max>(own);
    for_each_element<TOKEN_SCORES_THREADS, 4>(row, length, [&](u32, T x) { sum += exponential(larger(to_float(x) - largest, -200.0f)); });
    return LN_2 * fast_log2(group.reduce<Sum>(sum));
}

template <class T> HIPVIT_DEVICE void token_scores(const TokenScoresArgs &a) {
    HIPVIT_LDS static TokenScoresShared shared;
    const u32 parts = (a.vocabulary + TOKEN_SCORES_PART - 1) / TOKEN_SCORES_PART, row = block_index() / parts;
    if (row >= a.rows) return; // the whole block
    const u32 begin = block_index() % parts * TOKEN_SCORES_PART;
    for (u32 i = thread_index(); i < TOKEN_SCORES_PART / 32; i += TOKEN_SCORES_THREADS) shared.seen[i] = shared.excluded[i] = 0;
    if (thread_index() == 0) shared.padding = 0;
    barrier();
    const int *text = a.tokens + u64(row) * a.length;
    for (u32 i = thread_index(); i < a.length; i += TOKEN_SCORES_THREADS)
        if (text[i] < 0) atomic_max(&shared.padding, a.length - i);
    barrier();
    const u32 length = a.length - shared.padding;
    for (u32 i = thread_index(); i < length; i += TOKEN_SCORES_THREADS) {
        const u32 token = u32(text[i]) - begin;
        if (token >= TOKEN_SCORES_PART) continue;
        atomic_or(shared.seen + token / 32, 1u << token % 32);
        if (a.ngram > 0 && i + 1 >= a.ngram && repeats(text, length, i, a.ngram))
            atomic_or(shared.excluded + token / 32, 1u << token % 32);
    }
    barrier();
    const T *whole = (const T *)a.logits + u64(row) * a.vocabulary, *logits = whole + begin;
    float largest = 0.0f, sum = 0.0f;
    if (a.log) sum = log_sum(whole, a.vocabulary, largest, shared);
    float *scores = a.scores + u64(row) * a.vocabulary + begin;
    const u32 rest = a.vocabulary - begin, count = rest < TOKEN_SCORES_PART ? rest : TOKEN_SCORES_PART;
    for (u32 i = thread_index(); i < count; i += TOKEN_SCORES_THREADS) {
        float score = to_float(logits[i]) - largest - sum;
        if (shared.seen[i / 32] >> i % 32 & 1) score = score < 0.0f ? score * a.penalty : score / a.penalty;
        scores[i] = shared.excluded[i / 32] >> i % 32 & 1 ? -infinity() : score;
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(TOKEN_SCORES_THREADS) name##_##T(TokenScoresArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, token_scores)
