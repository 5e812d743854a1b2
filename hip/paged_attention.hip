// paged_attention: attention of one query per row over the first tokens of its pages.
//
// Shapes: q T [rows, columns], of which the first are [heads, head_dim]; out T [rows, heads, head_dim]; cache T [places, 2, kv_heads,
//   head_dim]; table i32 [rows, pages]; lengths i32 [rows]. All row-major.
// Alignment: any; 16 bytes per lane where head_dim and the addresses allow it.
// Accumulator: f32, with the online softmax of FlashAttention (Dao et al., 2022, https://arxiv.org/abs/2205.14135).
// Geometry: a block per head of a row. `lanes` lanes share a key; a team of them has several keys in flight. The teams of a wave are added up
//   by lane exchanges, the waves through LDS, in order, so that the result is the same in each run. Few blocks have PAGED_ATTENTION_FEW threads
//   each (entries `_few`), which takes fewer steps; many small blocks hide each other's waits.
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

// A block of THREADS, `VECS` vec128s of a head per lane, and about IN_FLIGHT vec128s of keys in flight per lane. `sums`, `maxima` and `totals` are LDS, for each wave.
template <class T, u32 THREADS, u32 IN_FLIGHT, u32 VECS>
HIPVIT_DEVICE void attend(const PagedAttentionArgs &a, float *sums, float *maxima, float *totals) {
    constexpr u32 WAVES = THREADS / WAVE, UNROLL = VECS < IN_FLIGHT ? IN_FLIGHT / VECS : 1; // keys per team in flight
    const u32 row = block_index() / a.heads, head = block_index() - row * a.heads;
    const u32 rank = thread_index() % a.lanes, team = thread_index() / a.lanes, teams = THREADS / a.lanes;
    const u64 width = u64(a.kv_heads) * a.head_dim, stride = 2 * width;
    const T *keys = (const T *)a.cache + head / (a.heads / a.kv_heads) * a.head_dim, *values = keys + width;
    const T *q = (const T *)a.q + u64(row) * a.columns + head * a.head_dim;
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
    // The teams of a wave, and then the waves, each in one order.
    const float of_wave = reduce_lanes<Max>(largest, int(a.lanes), WAVE / 2);
    const float factor = fast_exp2(largest - (of_wave == -infinity() ? 0.0f : of_wave));
    const u32 wave = u32(wave_index());
    const bool writes = u32(lane_index()) < a.lanes;
    total = reduce_lanes<Sum>(factor * total, int(a.lanes), WAVE / 2);
    if (lane_index() == 0) {
        maxima[wave] = of_wave;
        totals[wave] = total;
    }
#pragma unroll
    for (u32 s = 0; s < VECS; ++s)
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float of_teams = reduce_lanes<Sum>(factor * sum[s][i], int(a.lanes), WAVE / 2);
            if (writes && i < valid[s]) sums[wave * a.head_dim + column[s] + i] = of_teams;
        }
    barrier();
    float highest = -infinity();
    for (u32 other = 0; other < WAVES; ++other) highest = larger(highest, maxima[other]);
    if (highest == -infinity()) highest = 0.0f; // no key: all sums are 0
    T *out = (T *)a.out + u64(block_index()) * a.head_dim;
    for (u32 channel = thread_index(); channel < a.head_dim; channel += THREADS) {
        float numerator = 0.0f, denominator = 0.0f;
        for (u32 other = 0; other < WAVES; ++other) {
            const float scale = fast_exp2(maxima[other] - highest);
            numerator = multiply_add(scale, sums[other * a.head_dim + channel], numerator);
            denominator = multiply_add(scale, totals[other], denominator);
        }
        out[channel] = from_float<T>(length == 0 ? 0.0f : numerator / denominator);
    }
}

template <class T, u32 THREADS, u32 IN_FLIGHT> HIPVIT_DEVICE void paged_attention(const PagedAttentionArgs &a) {
    constexpr u32 WAVES = THREADS / WAVE;
    HIPVIT_LDS static float sums[WAVES * PAGED_ATTENTION_CHANNELS], maxima[WAVES], totals[WAVES];
    const u32 per_lane = (a.head_dim + a.lanes * VEC<T> - 1) / (a.lanes * VEC<T>);
    if (per_lane <= 1) {
        attend<T, THREADS, IN_FLIGHT, 1>(a, sums, maxima, totals);
    } else if (per_lane <= 2) {
        attend<T, THREADS, IN_FLIGHT, 2>(a, sums, maxima, totals);
    } else if constexpr (2 * PAGED_ATTENTION_LANES * VEC<T> < PAGED_ATTENTION_CHANNELS) {
        attend<T, THREADS, IN_FLIGHT, 4>(a, sums, maxima, totals);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(PAGED_ATTENTION_THREADS) name##_##T(PagedAttentionArgs a) { name<T, PAGED_ATTENTION_THREADS, 4>(a); } \
    HIPVIT_KERNEL(PAGED_ATTENTION_FEW) name##_few_##T(PagedAttentionArgs a) { name<T, PAGED_ATTENTION_FEW, 2>(a); }
HIPVIT_FOR_DTYPES(ENTRY, paged_attention)
