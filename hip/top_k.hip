// top_k: the k largest or smallest elements of each row in order, and their indices.
//
// Shapes: x T, f32 or i32 [rows, length]; values as x, [rows, k]; indices i32 [rows, k], k ≤ length. All row-major.
// Alignment: any.
// Geometry: blocks of TOP_K_THREADS. If many elements are taken, a thread has one element of a row, and counts the elements that precede it, which
//   is its place in the result. The row goes through LDS in parts. Few elements of a long row are taken by a block: the k-th largest of the
//   threads' maxima is at most the k-th largest element. The elements from it on are few. They go to LDS, where each counts those that precede it.
#include "top_k.h"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

// A number that orders as x does. NaN is the largest, and both zeros are equal.
HIPVIT_DEVICE u32 order_of(float x) {
    if (x != x) return 0xffffffff;
    const u32 bits = bits_of(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

HIPVIT_DEVICE u32 order_of(f16 x) { return order_of(to_float(x)); }
HIPVIT_DEVICE u32 order_of(bf16 x) { return order_of(to_float(x)); }
HIPVIT_DEVICE u32 order_of(int x) { return u32(x) ^ 0x80000000; }

template <class E> HIPVIT_DEVICE void select(const TopKArgs &a, u32 (&part)[TOP_K_THREADS]) {
    const u32 across = (a.length + TOP_K_THREADS - 1) / TOP_K_THREADS;
    const u32 row = block_index() / across, index = block_index() % across * TOP_K_THREADS + thread_index();
    if (row >= a.rows) return; // the whole block
    const E *x = (const E *)a.x + u64(row) * a.length;
    // The smallest come first if all orders are reversed.
    const u32 reversed = a.largest ? 0 : 0xffffffff;
    const u32 own = index < a.length ? order_of(x[index]) ^ reversed : 0;
    u32 place = 0;
    for (u32 first = 0; first < a.length; first += TOP_K_THREADS) {
        const u32 at = first + thread_index();
        barrier(); // the previous part has been read
        part[thread_index()] = at < a.length ? order_of(x[at]) ^ reversed : 0;
        barrier();
        const u32 count = a.length - first < TOP_K_THREADS ? a.length - first : TOP_K_THREADS;
        for (u32 i = 0; i < count; ++i) place += part[i] > own || (part[i] == own && first + i < index) ? 1 : 0;
    }
    if (index >= a.length || place >= a.k) return;
    ((E *)a.values)[u64(row) * a.k + place] = x[index];
    a.indices[u64(row) * a.k + place] = int(index);
}

// Returns the sum of `count` of all threads before this one, and the sum of all in `total`. `sums` is LDS.
HIPVIT_DEVICE u32 sum_before(u32 count, u32 (&sums)[TOP_K_THREADS], u32 &total) {
    u32 sum = count;
    for (int step = 1; step < WAVE; step *= 2) {
        const int lane = lane_index() - step;
        const u32 other = read_lane(sum, lane < 0 ? 0 : lane);
        sum += lane < 0 ? 0 : other;
    }
    barrier(); // the maxima have been read
    if (lane_index() == WAVE - 1) sums[wave_index()] = sum;
    barrier();
    u32 before = sum - count;
    total = 0;
    for (int wave = 0; wave < int(TOP_K_THREADS) / WAVE; ++wave) {
        if (wave < wave_index()) before += sums[wave];
        total += sums[wave];
    }
    return before;
}

struct TopKShared {
    u32 part[TOP_K_THREADS], keys[TOP_K_CANDIDATES], indices[TOP_K_CANDIDATES], bound;
};

template <class E> HIPVIT_DEVICE void select_few(const TopKArgs &a, TopKShared &shared) {
    const u32 row = block_index();
    if (row >= a.rows) return; // the whole block
    const E *x = (const E *)a.x + u64(row) * a.length;
    const u32 reversed = a.largest ? 0 : 0xffffffff;
    const auto key_of = [&](u32 index) { return order_of(x[index]) ^ reversed; };
    u32 own = 0;
#pragma unroll 8
    for (u32 index = thread_index(); index < a.length; index += TOP_K_THREADS) {
        const u32 key = key_of(index);
        own = key > own ? key : own;
    }
    shared.part[thread_index()] = own;
    barrier();
    u32 place = 0;
    for (u32 i = 0; i < TOP_K_THREADS; ++i) {
        const u32 other = shared.part[i];
        place += other > own || (other == own && i < thread_index()) ? 1 : 0;
    }
    if (place == a.k - 1) shared.bound = own;
    barrier();
    const u32 bound = shared.bound;
    u32 count = 0;
    if (own >= bound) {
#pragma unroll 8
        for (u32 index = thread_index(); index < a.length; index += TOP_K_THREADS) count += key_of(index) >= bound ? 1 : 0;
    }
    u32 total;
    u32 next = sum_before(count, shared.part, total);
    const auto write = [&](u32 at, u32 index) {
        if (at >= a.k) return;
        ((E *)a.values)[u64(row) * a.k + at] = x[index];
        a.indices[u64(row) * a.k + at] = int(index);
    };
    if (total > TOP_K_CANDIDATES) { // many equal elements
        for (u32 index = thread_index(); count > 0 && index < a.length; index += TOP_K_THREADS) {
            const u32 key = key_of(index);
            if (key < bound) continue;
            u32 at = 0;
            for (u32 i = 0; i < a.length && at < a.k; ++i) {
                const u32 other = key_of(i);
                at += other > key || (other == key && i < index) ? 1 : 0;
            }
            write(at, index);
        }
        return;
    }
    if (count > 0) {
        for (u32 index = thread_index(); index < a.length; index += TOP_K_THREADS) {
            const u32 key = key_of(index);
            if (key < bound) continue;
            shared.keys[next] = key;
            shared.indices[next++] = index;
        }
    }
    barrier();
    for (u32 own_place = thread_index(); own_place < total; own_place += TOP_K_THREADS) {
        const u32 key = shared.keys[own_place], index = shared.indices[own_place];
        u32 at = 0;
        for (u32 i = 0; i < total; ++i) {
            const u32 other = shared.keys[i];
            at += other > key || (other == key && shared.indices[i] < index) ? 1 : 0;
        }
        write(at, index);
    }
}

template <class E> HIPVIT_DEVICE void select_any(const TopKArgs &a, TopKShared &shared) {
    if (a.few) {
        select_few<E>(a, shared);
    } else {
        select<E>(a, shared.part);
    }
}

template <class T> HIPVIT_DEVICE void top_k(const TopKArgs &a) {
    HIPVIT_LDS static TopKShared shared;
    if (a.kind == 2) {
        select_any<int>(a, shared);
    } else if (a.kind == 1) {
        select_any<float>(a, shared);
    } else {
        select_any<T>(a, shared);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(TOP_K_THREADS) name##_##T(TopKArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, top_k)
