// Attention over pages whose score and mask are the functions of a pattern. The program that includes this file is generated: it defines
// Pattern<T> as attention/pattern.hpp says, without addends, and ends with HIPVIT_PAGED_PATTERN_ENTRIES(), whose entries are
// paged_attention_pattern_T and paged_attention_pattern_few_T.
//
// The query of a row is the last one of as many tokens as its length says. Keys before the first visible one are skipped.
#pragma once
#include "attention/paged.hpp"
#include "attention/pattern_functions.hpp"
#include "paged_attention_pattern.h"

namespace hipvit {

// The keys of a query that the pattern shows, and their scores.
template <class T> struct PatternKeys {
    static constexpr bool SCORES = Pattern<T>::SCORES, MASKS = Pattern<T>::MASKS;
    const Pattern<T> &pattern;
    const u32 query;

    HIPVIT_DEVICE float score(float s, u32 key) const { return pattern.score(s, query, key); }
    HIPVIT_DEVICE bool visible(u32 key) const { return pattern.visible(query, key); }
};

template <class T, u32 THREADS, u32 IN_FLIGHT, bool SPLITS>
HIPVIT_DEVICE void paged_attention_pattern(const PagedAttentionPatternArgs &args) {
    Share share(args.attention, SPLITS ? args.attention.splits : 1);
    AttentionPattern inputs = args.pattern;
    inputs.queries = inputs.keys = share.length;
    const Pattern<T> pattern(inputs, share.row, share.head);
    paged_attention<T, THREADS, IN_FLIGHT, SPLITS>(args.attention, share, PatternKeys<T>{pattern, share.length - 1});
}

#define HIPVIT_PAGED_PATTERN_ENTRIES() HIPVIT_FOR_DTYPES(HIPVIT_PAGED_PATTERN_ENTRY, paged_attention_pattern)
#define HIPVIT_PAGED_PATTERN_ENTRY(name, T)                                                                            \
    HIPVIT_KERNEL(hipvit::PAGED_ATTENTION_THREADS) name##_##T(hipvit::PagedAttentionPatternArgs a) {                   \
        hipvit::name<hipvit::T, hipvit::PAGED_ATTENTION_THREADS, 4, false>(a);                                         \
    }                                                                                                                  \
    HIPVIT_KERNEL(hipvit::PAGED_ATTENTION_FEW) name##_few_##T(hipvit::PagedAttentionPatternArgs a) {                   \
        hipvit::name<hipvit::T, hipvit::PAGED_ATTENTION_FEW, 2, true>(a);                                              \
    }

} // namespace hipvit
