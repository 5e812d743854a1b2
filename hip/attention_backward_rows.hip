// attention_backward_rows: log₂ Σ e^s and Σ o · dy of each query, which the derivatives of its scores need.
// attention_backward_sum: the gradient of queries that all images share, or of a bias, from the sums over some images each.
//
// Shapes: o, dy T [B, Nq, H, d]; statistics f32 [B, H, Nq, row_statistics]; rows f32 [B, H, Nq, 2]. x f32 [summands, elements];
//   out T [elements].
// Alignment: any; vec128 access where d and the addresses allow it.
// Accumulators: f32.
// Geometry: blocks of ATTENTION_BACKWARD_THREADS. ATTENTION_BACKWARD_LANES threads share a row, a thread computes one sum.
#include "attention_backward_rows.h"
#include "online_softmax.hpp"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void attention_backward_rows(const AttentionBackwardRowsArgs &a) {
    constexpr u32 LANES = ATTENTION_BACKWARD_LANES;
    // Adjacent groups of lanes have adjacent queries, whose results are adjacent.
    const u32 row = block_index() * (ATTENTION_BACKWARD_THREADS / LANES) + thread_index() / LANES;
    const bool exists = row < a.images * a.queries * a.heads;
    float delta = 0.0f;
    if (exists) {
        const u32 query = row % a.queries, head = row / a.queries % a.heads, image = row / a.queries / a.heads;
        const u64 first = ((u64(image) * a.queries + query) * a.heads + head) * a.head_dim;
        const T *const o = (const T *)a.o + first, *const dy = (const T *)a.dy + first;
        const bool vector = aligned(o, VEC128_BYTES) && aligned(dy, VEC128_BYTES);
        for (u32 at = thread_index() % LANES * VEC<T>; at < a.head_dim; at += LANES * VEC<T>) {
            float x[VEC<T>], y[VEC<T>];
            load_vec(o + at, a.head_dim - at, vector, x);
            load_vec(dy + at, a.head_dim - at, vector, y);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) delta = multiply_add(x[i], y[i], delta);
        }
    }
    delta = reduce_lanes<Sum>(delta, 1, LANES / 2);
    if (!exists || thread_index() % LANES) return;
    const float log_sum = a.statistics[u64(a.row_statistics) * row];
    a.rows[2 * u64(row)] = log_sum == -infinity() ? infinity() : log_sum * LOG2_E;
    a.rows[2 * u64(row) + 1] = delta;
}

template <class T> HIPVIT_DEVICE void attention_backward_sum(const AttentionBackwardSumArgs &a) {
    const u32 at = block_index() * ATTENTION_BACKWARD_THREADS + thread_index();
    if (at >= a.elements) return;
    float sum = 0.0f;
    for (u32 i = 0; i < a.summands; ++i) sum += a.x[u64(i) * a.elements + at];
    ((T *)a.out)[at] = from_float<T>(sum);
}

#define ROWS_ENTRY(name, T)                                                                                            \
    HIPVIT_KERNEL(ATTENTION_BACKWARD_THREADS) name##_##T(AttentionBackwardRowsArgs a) { name<T>(a); }
#define SUM_ENTRY(name, T)                                                                                             \
    HIPVIT_KERNEL(ATTENTION_BACKWARD_THREADS) name##_##T(AttentionBackwardSumArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ROWS_ENTRY, attention_backward_rows)
HIPVIT_FOR_DTYPES(SUM_ENTRY, attention_backward_sum)
