// relative_bias_backward: the gradient of a table, the sum over the pairs of a query and a key with each distance.
//
// Shapes: gradient T [kinds, heads, tokens, tokens], out T [distances, heads], row-major.
// Alignment: any. The pairs of a distance are apart by a token and a row, so loads are not coalesced.
// Accumulator: f32. A lane adds its pairs of every kind in order, and lanes in a fixed order.
// Geometry: blocks of RELATIVE_THREADS, an element of the table per wave.
#include "relative_bias_backward.h"
#include "relative.hpp"
#include "wave.hpp"

using namespace hipvit;

// Pairs of a query and a key, in rows of tokens. The steps are those from a pair to the next one in a row.
struct Pairs {
    u32 query, key, rows, columns, query_step, key_step;
};

// The pairs of a row of the table.
HIPVIT_DEVICE Pairs pairs_of(const RelativeGrid &g, u32 distance) {
    const u32 patches = g.rows * g.columns, count = distance_count(g);
    if (distance >= count) {
        // Class token to patches, patches to class token, class token to itself.
        const bool to_patch = distance == count, from_patch = distance == count + 1;
        const u32 of_class = to_patch || from_patch ? patches : 1;
        return {u32(from_patch), u32(to_patch), 1, of_class, u32(from_patch), u32(to_patch)};
    }
    const int down = int(distance / (2 * g.columns - 1)) - int(g.rows - 1);
    const int right = int(distance % (2 * g.columns - 1)) - int(g.columns - 1);
    const u32 query = u32(down > 0 ? down : 0) * g.columns + u32(right > 0 ? right : 0);
    const u32 key = u32(down < 0 ? -down : 0) * g.columns + u32(right < 0 ? -right : 0);
    const u32 rows = g.rows - u32(down < 0 ? -down : down), columns = g.columns - u32(right < 0 ? -right : right);
    return {query + g.class_token, key + g.class_token, rows, columns, 1, 1};
}

template <class T> HIPVIT_DEVICE void relative_bias_backward(const RelativeBiasBackwardArgs &a) {
    const RelativeGrid &g = a.grid;
    const u32 tokens = token_count(g), element = block_index() * (RELATIVE_THREADS / WAVE) + u32(wave_index());
    const u32 distance = element / g.heads, head = element % g.heads;
    if (distance >= distance_count(g) + 3 * g.class_token) return;
    const Pairs pairs = pairs_of(g, distance);
    float sum = 0.0f;
    for (u32 kind = 0; kind < g.kinds; ++kind) {
        const T *gradient = (const T *)a.gradient + (u64(kind) * g.heads + head) * tokens * tokens;
        for (u32 i = u32(lane_index()); i < pairs.rows * pairs.columns; i += WAVE) {
            const u32 down = i / pairs.columns * g.columns, right = i % pairs.columns;
            const u32 query = pairs.query + down + right * pairs.query_step, key = pairs.key + down + right * pairs.key_step;
            sum += to_float(gradient[u64(query) * tokens + key]);
        }
    }
    sum = reduce_wave<Sum>(sum);
    if (lane_index() == 0) ((T *)a.out)[element] = from_float<T>(sum);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(RELATIVE_THREADS) name##_##T(RelativeBiasBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, relative_bias_backward)
