// search: the rows of a matrix with the largest inner products with queries.
//
// search_scores: x T [rows, width], query T [queries, width], scores f32 [queries, rows], accumulated in f32. A wave takes SEARCH_ROWS rows,
//   whose vectors it loads once for all queries, so that it is as fast as memory is read.
// search_best: a block takes SEARCH_PART scores of a query. Most parts have no key above the last kept one, and end after reading their scores.
//   A part with more keys than are kept sorts them in LDS (bitonic).
// search_merge: a block per query. Keys are different, so that the result does not depend on the order in which they are found.
// All matrices are row-major. Alignment: that of an element; with 16 bytes and rows of whole vec128s, search_scores loads vectors.
// Geometry: blocks of SEARCH_THREADS.
#include "search.h"
#include "device.hpp"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

template <class T, u32 QUERIES> HIPVIT_DEVICE void multiply_rows(const SearchScoresArgs &a) {
    const u32 first = (block_index() * (SEARCH_THREADS / WAVE) + u32(wave_index())) * SEARCH_ROWS;
    if (first >= a.rows) return; // the whole wave
    const T *rows[SEARCH_ROWS];
#pragma unroll
    for (u32 row = 0; row < SEARCH_ROWS; ++row) {
        const u32 index = first + row < a.rows ? first + row : a.rows - 1;
        rows[row] = (const T *)a.x + u64(index) * a.width;
    }
    const bool vector = a.width % VEC<T> == 0 && aligned((const void *)a.x, VEC128_BYTES) && aligned((const void *)a.query, VEC128_BYTES);
    float sums[QUERIES][SEARCH_ROWS] = {};
    for (u32 column = u32(lane_index()) * VEC<T>; column < a.width; column += WAVE * VEC<T>) {
        const u32 valid = a.width - column < VEC<T> ? a.width - column : VEC<T>;
        float x[SEARCH_ROWS][VEC<T>], y[VEC<T>];
#pragma unroll
        for (u32 row = 0; row < SEARCH_ROWS; ++row) load_vec(rows[row] + column, valid, vector, x[row]);
#pragma unroll
        for (u32 query = 0; query < QUERIES; ++query) {
            load_vec((const T *)a.query + u64(query) * a.width + column, valid, vector, y);
#pragma unroll
            for (u32 row = 0; row < SEARCH_ROWS; ++row)
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) sums[query][row] = multiply_add(x[row][i], y[i], sums[query][row]);
        }
    }
#pragma unroll
    for (u32 query = 0; query < QUERIES; ++query)
#pragma unroll
        for (u32 row = 0; row < SEARCH_ROWS; ++row) {
            const float sum = reduce_wave<Sum>(sums[query][row]);
            if (lane_index() == 0 && first + row < a.rows)
                ((float *)a.scores)[u64(query) * a.rows + first + row] = sum;
        }
}

template <class T> HIPVIT_DEVICE void search_scores(const SearchScoresArgs &a) {
    switch (a.queries) {
    case 1: return multiply_rows<T, 1>(a);
    case 2: return multiply_rows<T, 2>(a);
    case 3: return multiply_rows<T, 3>(a);
    default: return multiply_rows<T, 4>(a);
    }
}

HIPVIT_DEVICE u32 smaller_of(u32 a, u32 b) { return a < b ? a : b; }

HIPVIT_DEVICE u64 key_of(float score, u32 row) {
    if (score != score) return 0;
    const u32 bits = bits_of(score + 0.0f); // both zeros are equal
    return u64(bits >> 31 ? ~bits : bits | 0x80000000) << 32 | u32(~row);
}

// Sorts the first `count` keys, a power of two, in descending order.
HIPVIT_DEVICE void sort_keys(u64 *keys, u32 count) {
    for (u32 size = 2; size <= count; size *= 2)
        for (u32 stride = size / 2; stride > 0; stride /= 2) {
            barrier();
            for (u32 i = thread_index(); i < count / 2; i += SEARCH_THREADS) {
                const u32 low = 2 * i - (i & (stride - 1)), high = low + stride;
                const u64 a = keys[low], b = keys[high];
                if ((a < b) == ((low & size) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
        }
    barrier();
}

// Replaces the count of each thread by the sum of the counts up to it. Returns the sum of all.
HIPVIT_DEVICE u32 sum_counts(u32 *counts) {
    for (u32 step = 1; step < SEARCH_THREADS; step *= 2) {
        barrier();
        const u32 before = thread_index() >= step ? counts[thread_index() - step] : 0;
        barrier();
        counts[thread_index()] += before;
    }
    barrier();
    return counts[SEARCH_THREADS - 1];
}

HIPVIT_DEVICE void search_best(const SearchBestArgs &a) {
    HIPVIT_LDS static u64 keys[SEARCH_PART];
    HIPVIT_LDS static u32 counts[SEARCH_THREADS];
    HIPVIT_LDS static u32 is_found;
    constexpr u32 OWN = SEARCH_PART / SEARCH_THREADS;
    const u32 parts = (a.rows + SEARCH_PART - 1) / SEARCH_PART;
    const u32 query = block_index() / parts, part = block_index() % parts;
    if (query >= a.queries) return; // the whole block
    const u64 bound = ((const u64 *)a.best)[u64(query) * a.kept + a.kept - 1];
    const float *scores = (const float *)a.scores + u64(query) * a.rows, *offsets = (const float *)a.offsets;
    u64 own[OWN];
    u32 count = 0;
#pragma unroll
    for (u32 i = 0; i < OWN; ++i) {
        const u32 row = part * SEARCH_PART + i * SEARCH_THREADS + thread_index();
        own[i] = 0;
        if (row < a.rows) own[i] = key_of(offsets ? scores[row] + offsets[row] : scores[row], a.first + row);
        if (own[i] <= bound) own[i] = 0;
        count += own[i] ? 1 : 0;
    }
    if (thread_index() == 0) is_found = 0;
    barrier();
    if (count) is_found = 1;
    counts[thread_index()] = count;
    barrier();
    u32 *total = (u32 *)a.counts + u64(query) * parts + part;
    if (!is_found) {
        if (thread_index() == 0) *total = 0;
        return;
    }
    const u32 sum = sum_counts(counts);
    u64 *found = (u64 *)a.found + (u64(query) * parts + part) * a.kept;
    if (thread_index() == 0) *total = smaller_of(sum, a.kept);
    if (sum <= a.kept) {
        u32 place = counts[thread_index()] - count;
#pragma unroll
        for (u32 i = 0; i < OWN; ++i)
            if (own[i]) found[place++] = own[i];
        return;
    }
#pragma unroll
    for (u32 i = 0; i < OWN; ++i) keys[i * SEARCH_THREADS + thread_index()] = own[i];
    sort_keys(keys, SEARCH_PART);
    for (u32 i = thread_index(); i < a.kept; i += SEARCH_THREADS) found[i] = keys[i];
}

HIPVIT_DEVICE void search_merge(const SearchMergeArgs &a) {
    HIPVIT_LDS static u64 keys[SEARCH_PART];
    HIPVIT_LDS static u32 counts[SEARCH_THREADS];
    const u32 query = block_index();
    if (query >= a.queries) return; // the whole block
    const u32 each = (a.parts + SEARCH_THREADS - 1) / SEARCH_THREADS, begin = thread_index() * each;
    const u32 *totals = (const u32 *)a.counts + u64(query) * a.parts;
    const u64 *found = (const u64 *)a.found + u64(query) * a.parts * a.kept;
    u64 *best = (u64 *)a.best + u64(query) * a.kept;
    u32 count = 0;
    for (u32 part = begin; part < begin + each && part < a.parts; ++part) count += smaller_of(totals[part], a.kept);
    counts[thread_index()] = count;
    const u32 sum = sum_counts(counts);
    if (sum == 0) return;
    for (u32 i = thread_index(); i < a.kept; i += SEARCH_THREADS) keys[i] = best[i];
    if (a.kept + sum <= SEARCH_PART) {
        u32 size = 2, place = a.kept + counts[thread_index()] - count;
        while (size < a.kept + sum) size *= 2;
        for (u32 part = begin; part < begin + each && part < a.parts; ++part)
            for (u32 i = 0; i < smaller_of(totals[part], a.kept); ++i) keys[place++] = found[u64(part) * a.kept + i];
        for (u32 i = a.kept + sum + thread_index(); i < size; i += SEARCH_THREADS) keys[i] = 0;
        sort_keys(keys, size);
    } else {
        const u32 slots = a.parts * a.kept, room = SEARCH_PART - a.kept;
        for (u32 first = 0; first < slots; first += room) {
            for (u32 i = thread_index(); i < room; i += SEARCH_THREADS) {
                const u32 slot = first + i;
                keys[a.kept + i] = slot < slots && slot % a.kept < totals[slot / a.kept] ? found[slot] : 0;
            }
            sort_keys(keys, SEARCH_PART);
        }
    }
    for (u32 i = thread_index(); i < a.kept; i += SEARCH_THREADS) best[i] = keys[i];
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(SEARCH_THREADS) name##_scores_##T(SearchScoresArgs a) { search_scores<T>(a); }                      \
    HIPVIT_KERNEL(SEARCH_THREADS) name##_best_##T(SearchBestArgs a) { search_best(a); }                               \
    HIPVIT_KERNEL(SEARCH_THREADS) name##_merge_##T(SearchMergeArgs a) { search_merge(a); }
HIPVIT_FOR_DTYPES(ENTRY, search)
