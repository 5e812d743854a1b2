// paged_attention: attention of one query per row over the first tokens of its pages.
//
// Shapes: q, out T [rows, heads, head_dim]; cache T [places, 2, kv_heads, head_dim]; table i32 [rows, pages]; lengths i32 [rows]. All
//   row-major.
// Alignment: any; 16 bytes per lane where head_dim and the addresses allow it.
// Accumulator: f32, with the online softmax of FlashAttention (Dao et al., 2022, https://arxiv.org/abs/2205.14135).
// Geometry: a block of PAGED_ATTENTION_THREADS per head of a row. `lanes` lanes share a key, several keys are loaded before any is used. The
//   teams of lanes are added up through LDS, in order, so that the result is the same in each run.
#include "paged_attention.h"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE Vec<T> load_raw(const T *from, u32 valid, bool vector) {
    Vec<T> vec;
    if (vector && valid >= VEC<T>) {
        vec.whole = *reinterpret_cast<const Vec128 *>(from);
    } else {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) vec.element[i] = i < valid ? from[i] : from_float<T>(0.0f);
    }
    return vec;
}

// `VECS` vec128s of a head per lane. `sums`, `maxima` and `totals` are LDS, for each team.
template <class T, u32 VECS>
HIPVIT_DEVICE void attend(const PagedAttentionArgs &a, float *sums, float *maxima, float *totals) {
    constexpr u32 UNROLL = VECS < 4 ? 4 / VECS : 1; // keys per team in flight
    const u32 row = block_index() / a.heads, head = block_index() - row * a.heads;
    const u32 rank = thread_index() % a.lanes, team = thread_index() / a.lanes, teams = PAGED_ATTENTION_THREADS / a.lanes;
    const u64 width = u64(a.kv_heads) * a.head_dim, stride = 2 * width;
    const T *keys = (const T *)a.cache + head / (a.heads / a.kv_heads) * a.head_dim, *values = keys + width;
    const T *q = (const T *)a.q + u64(block_index()) * a.head_dim;
    const bool vector = a.head_dim % VEC<T> == 0 && aligned(keys, VEC128_BYTES) && aligned(values, VEC128_BYTES);
    const int *table = a.table + u64(row) * a.pages;
    const u64 most = u64(a.pages) * a.page;
    const int given = a.lengths[row];
    const u32 length = given < 0 ? 0 : u64(given) < most ? u32(given) : u32(most);
    const int last = int(a.places / a.page) - 1;

    float query[VECS][VEC<T>], sum[VECS][VEC<T>] = {};
    u32 column[VECS], valid[VECS];
#pragma unroll
    for (u32 s = 0; s < VECS; ++s) {
        column[s] = (rank + s * a.lanes) * VEC<T>;
        valid[s] = column[s] >= a.head_dim ? 0 : a.head_dim - column[s] < VEC<T> ? a.head_dim - column[s] : VEC<T>;
        load_vec(q + column[s], valid[s], false, query[s]);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) query[s][i] *= a.scale * 1.44269504f; // e^x = 2^(1.44… · x)
    }
    float largest = -infinity(), total = 0.0f;
    // All lanes of a wave make the same steps, as they exchange sums.
    for (u32 start = 0; start < length; start += teams * UNROLL) {
        Vec<T> key[UNROLL][VECS], value[UNROLL][VECS];
        float score[UNROLL];
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            const u32 token = start + u * teams + team;
            const bool is_seen = token < length;
            const u32 page = is_seen ? token / a.page : 0;
            int number = table[page];
            number = number < 0 ? 0 : number > last ? last : number;
            const u64 place = u64(number) * a.page + (is_seen ? token - page * a.page : 0);
#pragma unroll
            for (u32 s = 0; s < VECS; ++s) {
                const u32 loaded = is_seen ? valid[s] : 0;
                key[u][s] = load_raw(keys + place * stride + column[s], loaded, vector);
                value[u][s] = load_raw(values + place * stride + column[s], loaded, vector);
            }
        }
        float larger_one = largest;
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            float product = 0.0f;
#pragma unroll
            for (u32 s = 0; s < VECS; ++s)
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) product = multiply_add(query[s][i], key[u][s][i], product);
            product = reduce_lanes<Sum>(product, 1, int(a.lanes / 2));
            score[u] = start + u * teams + team < length ? product : -infinity();
            larger_one = larger(larger_one, score[u]);
        }
        // Without a key, or if all scores are −∞ or NaN, the difference would be NaN, or hide one.
        const float base = larger_one == -infinity() ? 0.0f : larger_one;
        const float correction = fast_exp2(largest - base);
        largest = larger_one;
        total *= correction;
#pragma unroll
        for (u32 s = 0; s < VECS; ++s)
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) sum[s][i] *= correction;
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            const float weight = fast_exp2(score[u] - base);
            total += weight;
#pragma unroll
            for (u32 s = 0; s < VECS; ++s)
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) sum[s][i] = multiply_add(weight, value[u][s][i], sum[s][i]);
        }
    }
    if (rank == 0) {
        maxima[team] = largest;
        totals[team] = total;
    }
#pragma unroll
    for (u32 s = 0; s < VECS; ++s)
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i)
            if (i < valid[s]) sums[team * a.head_dim + column[s] + i] = sum[s][i];
    barrier();
    const u32 channel = thread_index();
    if (channel >= a.head_dim) return;
    float highest = -infinity();
    for (u32 other = 0; other < teams; ++other) highest = larger(highest, maxima[other]);
    if (highest == -infinity()) highest = 0.0f; // no key: all sums are 0
    float numerator = 0.0f, denominator = 0.0f;
    for (u32 other = 0; other < teams; ++other) {
        const float factor = fast_exp2(maxima[other] - highest);
        numerator = multiply_add(factor, sums[other * a.head_dim + channel], numerator);
        denominator = multiply_add(factor, totals[other], denominator);
    }
    T *out = (T *)a.out + u64(block_index()) * a.head_dim + channel;
    *out = from_float<T>(length == 0 ? 0.0f : numerator / denominator);
}

template <class T> HIPVIT_DEVICE void paged_attention(const PagedAttentionArgs &a) {
    HIPVIT_LDS static float sums[PAGED_ATTENTION_THREADS / PAGED_ATTENTION_LANES * PAGED_ATTENTION_CHANNELS];
    HIPVIT_LDS static float maxima[PAGED_ATTENTION_THREADS], totals[PAGED_ATTENTION_THREADS];
    const u32 per_lane = (a.head_dim + a.lanes * VEC<T> - 1) / (a.lanes * VEC<T>);
    if (per_lane <= 1) {
        attend<T, 1>(a, sums, maxima, totals);
    } else if (per_lane <= 2) {
        attend<T, 2>(a, sums, maxima, totals);
    } else if constexpr (2 * PAGED_ATTENTION_LANES * VEC<T> < PAGED_ATTENTION_CHANNELS) {
        attend<T, 4>(a, sums, maxima, totals);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(PAGED_ATTENTION_THREADS) name##_##T(PagedAttentionArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, paged_attention)
