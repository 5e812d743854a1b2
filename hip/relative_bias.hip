// relative_bias: the bias of each pair of a query and a key, from a table with a row for each distance.
//
// Shapes: table T [distances, heads], out T [kinds, heads, tokens, tokens], row-major.
// Alignment: any; consecutive threads write consecutive elements.
// Arithmetic: elements are moved. Pairs of different parts of a shifted window get −100 more, in f32.
// Geometry: blocks of RELATIVE_THREADS, an element per thread.
#include "relative_bias.h"
#include "relative.hpp"

using namespace hipvit;

constexpr float HIDDEN = -100.0f;

template <class T> HIPVIT_DEVICE void relative_bias(const RelativeBiasArgs &a) {
    const RelativeGrid &g = a.grid;
    const u32 tokens = token_count(g);
    const u64 at = u64(block_index()) * RELATIVE_THREADS + thread_index();
    const u64 row = at / tokens;
    const u32 key = u32(at % tokens), query = u32(row % tokens);
    const u32 head = u32(row / tokens % g.heads), kind = u32(row / tokens / g.heads);
    if (kind >= g.kinds) return;
    const T stored = ((const T *)a.table)[u64(distance_of(g, query, key)) * g.heads + head];
    const bool is_hidden = part_of(g, kind, query) != part_of(g, kind, key);
    ((T *)a.out)[at] = is_hidden ? from_float<T>(to_float(stored) + HIDDEN) : stored;
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(RELATIVE_THREADS) name##_##T(RelativeBiasArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, relative_bias)
