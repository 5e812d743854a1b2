// paged_attention: attention of one query per row over the first tokens of its pages. attention/paged.hpp has the shapes, the geometry and
// the order of sums.
#include "attention/paged.hpp"

using namespace hipvit;

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(PAGED_ATTENTION_THREADS) name##_##T(PagedAttentionArgs a) {                                          \
        Share share(a, 1);                                                                                             \
        name<T, PAGED_ATTENTION_THREADS, 4, false>(a, share, EveryKey());                                              \
    }                                                                                                                  \
    HIPVIT_KERNEL(PAGED_ATTENTION_FEW) name##_few_##T(PagedAttentionArgs a) {                                          \
        Share share(a, a.splits);                                                                                      \
        name<T, PAGED_ATTENTION_FEW, 2, true>(a, share, EveryKey());                                                   \
    }
HIPVIT_FOR_DTYPES(ENTRY, paged_attention)
