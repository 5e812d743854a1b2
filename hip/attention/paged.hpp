// Attention of one query per row over the tokens of its pages: what the kernels of paged_attention.hip and of patterns have in common.
//
// Shapes: q T [rows, columns], of which the first are [heads, head_dim]; out T [rows, heads, head_dim]; cache T [places, 2, kv_heads,
//   head_dim]; table i32 [rows, pages]; lengths i32 [rows]; parts f32 [rows · heads · splits, head_dim + 2]; arrivals u32 [rows · heads].
//   All row-major.
// Alignment: any; 16 bytes per lane where head_dim and the addresses allow it.
// Accumulator: f32, with the online softmax of FlashAttention (Dao et al., 2022, https://arxiv.org/abs/2205.14135).
// Geometry: a block per head of a row. `lanes` lanes share a key; a team of them has several keys in flight. The teams of a wave are added up
//   by lane exchanges, the waves through LDS. Few heads have blocks of PAGED_ATTENTION_FEW threads (entries `_few`), and up to `splits` of
//   them; many small blocks hide each other's waits.
// Splits: blocks share the keys as in FlashDecoding (Dao et al., 2023, https://crfm.stanford.edu/2023/10/12/flashdecoding.html). Each writes
//   its sums to `parts`, and the last one adds them up. A row of few tokens has fewer blocks, of which one alone writes the result.
// Keys: EveryKey, or a pattern's (attention/paged_pattern.hpp).
// Order: each sum has a fixed order, so that the bits depend on the operands and on `splits` only.
#pragma once
#include "paged_attention.h"
#include "atomics.hpp"
#include "last_block.hpp"
#include "online_softmax.hpp"
#include "vec128.hpp"
#include "wave.hpp"

namespace hipvit {

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

// The keys of a block.
struct Share {
    u32 of_all, row, head; // of_all = row · heads + head
    u32 length;            // tokens that the query may see
    u32 split, splits;     // this block is one of at most `splits` of the head
    u32 blocks;            // blocks that have keys, at least 1
    u32 first, end;        // this block's keys

    HIPVIT_DEVICE Share(const PagedAttentionArgs &a, u32 splits) : splits(splits) {
        of_all = block_index() / splits, split = block_index() - of_all * splits;
        row = of_all / a.heads, head = of_all - row * a.heads;
        const u64 most = u64(a.pages) * a.page;
        const int given = a.lengths[row];
        length = given < 0 ? 0 : u64(given) < most ? u32(given) : u32(most);
    }
    // Divides the keys that begin at `from` among the blocks. Returns true if this block takes part.
    HIPVIT_DEVICE bool divide(u32 from) {
        const u32 count = length - from, even = (count + splits - 1) / splits;
        const u32 span = ((even > PAGED_ATTENTION_SPAN ? even : PAGED_ATTENTION_SPAN) + 63) / 64 * 64;
        const bool is_whole = splits == 1 || count <= PAGED_ATTENTION_WHOLE;
        blocks = is_whole ? 1 : (count + span - 1) / span;
        first = from + split * span, end = is_whole || length - first < span ? length : first + span;
        return split < blocks;
    }
};

// The keys and scores of attention without a pattern.
struct EveryKey {
    static constexpr bool SCORES = false, MASKS = false;
    HIPVIT_DEVICE float score(float s, u32) const { return s; }
    HIPVIT_DEVICE bool visible(u32) const { return true; }
};

// Returns the first visible key below `length`, or `length`. A window of the last keys begins there.
template <u32 THREADS, class Keys> HIPVIT_DEVICE u32 first_visible(const Keys &keys, u32 length) {
    HIPVIT_LDS static u32 first;
    if (thread_index() == 0) first = length;
    barrier();
    for (u32 key = thread_index(); key < length; key += THREADS)
        if (keys.visible(key)) {
            atomic_min(&first, key);
            break;
        }
    barrier();
    return first;
}

// Sums of a head's keys: of the waves in LDS, or of the blocks in memory. A part without scores has a maximum of −∞, and sums of 0.
struct Parts {
    float *sums, *maxima, *totals;
    u32 count, head_dim;

    // Adds up a channel and the weights, both relative to the maximum of all scores, in the order of the parts.
    HIPVIT_DEVICE void add(u32 channel, float &largest, float &sum, float &total) const {
        largest = -infinity();
        sum = total = 0.0f;
#pragma unroll 8
        for (u32 part = 0; part < count; ++part) {
            const float of_part = maxima[part], larger_one = larger(largest, of_part);
            const float base = subtrahend_of_max(larger_one);
            const float correction = fast_exp2(largest - base), scale = fast_exp2(of_part - base);
            largest = larger_one;
            sum = multiply_add(scale, sums[part * head_dim + channel], correction * sum);
            total = multiply_add(scale, totals[part], correction * total);
        }
    }
};

// `VECS` vec128s of a head per lane, and about IN_FLIGHT vec128s of keys in flight per lane. Leaves the sums of the waves in `parts`.
template <class T, u32 THREADS, u32 IN_FLIGHT, u32 VECS, class Keys>
HIPVIT_DEVICE void attend(const PagedAttentionArgs &a, const Share &share, const Keys &pattern, const Parts &parts) {
    constexpr u32 UNROLL = VECS < IN_FLIGHT ? IN_FLIGHT / VECS : 1; // keys per team in flight
    const u32 row = share.row, head = share.head, end = share.end;
    const u32 rank = thread_index() % a.lanes, team = thread_index() / a.lanes, teams = THREADS / a.lanes;
    const u64 width = u64(a.kv_heads) * a.head_dim, stride = 2 * width;
    const T *keys = (const T *)a.cache + head / (a.heads / a.kv_heads) * a.head_dim, *values = keys + width;
    const T *q = (const T *)a.q + u64(row) * a.columns + head * a.head_dim;
    const bool vector = a.head_dim % VEC<T> == 0 && aligned(keys, VEC128_BYTES) && aligned(values, VEC128_BYTES);
    const int *table = a.table + u64(row) * a.pages;
    const int last = int(a.places / a.page) - 1;

    float query[VECS][VEC<T>], sum[VECS][VEC<T>] = {};
    u32 column[VECS], valid[VECS];
#pragma unroll
    for (u32 s = 0; s < VECS; ++s) {
        column[s] = (rank + s * a.lanes) * VEC<T>;
        valid[s] = column[s] >= a.head_dim ? 0 : a.head_dim - column[s] < VEC<T> ? a.head_dim - column[s] : VEC<T>;
        load_vec(q + column[s], valid[s], false, query[s]);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) query[s][i] *= Keys::SCORES ? a.scale : a.scale * LOG2_E;
    }
    float largest = -infinity(), total = 0.0f;
    // All lanes of a wave make the same steps, as they exchange sums.
    for (u32 start = share.first; start < end; start += teams * UNROLL) {
        Vec<T> key[UNROLL][VECS], value[UNROLL][VECS];
        float score[UNROLL];
        bool sees[UNROLL];
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            const u32 token = start + u * teams + team;
            const bool is_seen = token < end && pattern.visible(token);
            sees[u] = is_seen;
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
            if constexpr (Keys::SCORES) product = LOG2_E * pattern.score(product, start + u * teams + team);
            score[u] = sees[u] ? product : -infinity();
            larger_one = larger(larger_one, score[u]);
        }
        // Without a key, or if all scores are −∞ or NaN, the difference would be NaN, or hide one.
        const float base = subtrahend_of_max(larger_one);
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
    const float factor = fast_exp2(largest - subtrahend_of_max(of_wave));
    const u32 wave = u32(wave_index());
    const bool writes = u32(lane_index()) < a.lanes;
    total = reduce_lanes<Sum>(factor * total, int(a.lanes), WAVE / 2);
    if (lane_index() == 0) {
        parts.maxima[wave] = of_wave;
        parts.totals[wave] = total;
    }
#pragma unroll
    for (u32 s = 0; s < VECS; ++s)
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float of_teams = reduce_lanes<Sum>(factor * sum[s][i], int(a.lanes), WAVE / 2);
            if (writes && i < valid[s]) parts.sums[wave * a.head_dim + column[s] + i] = of_teams;
        }
}

// A block of THREADS. With SPLITS, blocks share the keys of a head.
template <class T, u32 THREADS, u32 IN_FLIGHT, bool SPLITS, class Keys>
HIPVIT_DEVICE void paged_attention(const PagedAttentionArgs &a, Share &share, const Keys &keys) {
    constexpr u32 WAVES = THREADS / WAVE;
    HIPVIT_LDS static float sums[WAVES * PAGED_ATTENTION_CHANNELS], maxima[WAVES], totals[WAVES];
    if (!share.divide(Keys::MASKS ? first_visible<THREADS>(keys, share.length) : 0)) return;
    const Parts of_block = {sums, maxima, totals, WAVES, a.head_dim};
    const u32 per_lane = (a.head_dim + a.lanes * VEC<T> - 1) / (a.lanes * VEC<T>);
    if (per_lane <= 1) {
        attend<T, THREADS, IN_FLIGHT, 1>(a, share, keys, of_block);
    } else if (per_lane <= 2) {
        attend<T, THREADS, IN_FLIGHT, 2>(a, share, keys, of_block);
    } else if constexpr (2 * PAGED_ATTENTION_LANES * VEC<T> < PAGED_ATTENTION_CHANNELS) {
        attend<T, THREADS, IN_FLIGHT, 4>(a, share, keys, of_block);
    }
    barrier();
    T *out = (T *)a.out + u64(share.of_all) * a.head_dim;
    const auto write = [&](const Parts &parts) {
        for (u32 channel = thread_index(); channel < a.head_dim; channel += THREADS) {
            float largest, sum, total;
            parts.add(channel, largest, sum, total);
            // A pattern may hide all keys.
            const bool is_zero = Keys::MASKS || Keys::SCORES ? total == 0.0f : share.length == 0;
            out[channel] = from_float<T>(is_zero ? 0.0f : sum / total);
        }
    };
    if (!SPLITS || share.blocks == 1) {
        write(of_block);
        return;
    }
    const u64 all = u64(a.rows) * a.heads * a.splits, at = u64(share.of_all) * a.splits;
    float *const all_maxima = a.parts + all * a.head_dim + at;
    const Parts of_head = {a.parts + at * a.head_dim, all_maxima, all_maxima + all, share.blocks, a.head_dim};
    for (u32 channel = thread_index(); channel < a.head_dim; channel += THREADS) {
        float largest, sum, total;
        of_block.add(channel, largest, sum, total);
        of_head.sums[share.split * a.head_dim + channel] = sum;
        if (channel == 0) {
            of_head.maxima[share.split] = largest;
            of_head.totals[share.split] = total;
        }
    }
    if (is_last_block(a.arrivals + share.of_all, share.blocks)) write(of_head);
}

} // namespace hipvit
