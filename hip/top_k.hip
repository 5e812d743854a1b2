// top_k: the k largest or smallest elements of each row in order, and their indices.
//
// Shapes: x T, f32 or i32 [rows, length]; values as x, [rows, k]; indices i32 [rows, k], k ≤ length. All row-major.
// Alignment: any.
// Geometry: blocks of TOP_K_THREADS. A thread has one element of a row, and counts the elements that precede it, which is its place in the
//   result. The row goes through LDS in parts. `top_k_few`, for few elements of a long row: a block of TOP_K_FEW_THREADS per row. The k-th
//   largest of the maxima of its groups of threads is at most the k-th largest element. The elements from it on are few. They go to LDS,
//   where each counts those that precede it.
#include "top_k.h"
#include "atomics.hpp"
#include "row_elements.hpp"
#include "wave.hpp"

using namespace hipvit;

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

// Calls `use` with the index of each element that this thread looks at, and the number that orders it.
template <class E, class Use> HIPVIT_DEVICE void for_each_key(const TopKArgs &a, const E *x, const Use &use) {
    const u32 reversed = a.largest ? 0 : 0xffffffff;
    for_each_element<TOP_K_FEW_THREADS, 4>(x, a.length, [&](u32 index, E element) { use(index, order_of(element) ^ reversed); });
}

constexpr u32 TOP_K_GROUPS = TOP_K_FEW_THREADS / TOP_K_GROUP;

struct TopKFewShared {
    u32 largest[TOP_K_GROUPS], keys[TOP_K_CANDIDATES], indices[TOP_K_CANDIDATES], bound, candidates;
};

template <class E> HIPVIT_DEVICE void select_few(const TopKArgs &a, TopKFewShared &shared) {
    static_assert(TOP_K_LONG / VEC<E> / TOP_K_GROUP >= TOP_K_FEW, "k groups need an element");
    const u32 row = block_index();
    if (row >= a.rows) return; // the whole block
    const E *x = (const E *)a.x + u64(row) * a.length;
    u32 own = 0;
    for_each_key(a, x, [&](u32, u32 key) { own = key > own ? key : own; });
    for (int bit = 1; bit < int(TOP_K_GROUP); bit *= 2) {
        const u32 other = read_lane(own, lane_index() ^ bit);
        own = other > own ? other : own;
    }
    if (thread_index() % TOP_K_GROUP == 0) shared.largest[thread_index() / TOP_K_GROUP] = own;
    if (thread_index() == 0) shared.candidates = 0;
    barrier();
    if (thread_index() < TOP_K_GROUPS) {
        const u32 mine = shared.largest[thread_index()];
        u32 place = 0;
#pragma unroll 16
        for (u32 i = 0; i < TOP_K_GROUPS; ++i) {
            const u32 other = shared.largest[i];
            place += other > mine || (other == mine && i < thread_index()) ? 1 : 0;
        }
        if (place == a.k - 1) shared.bound = mine;
    }
    barrier();
    const u32 bound = shared.bound;
    const auto for_each_candidate = [&](const auto &use) {
        if (own < bound) return;
        for_each_key(a, x, [&](u32 index, u32 key) {
            if (key >= bound) use(index, key);
        });
    };
    for_each_candidate([&](u32 index, u32 key) {
        const u32 next = take_next(&shared.candidates); // in any order, as they are ranked below
        if (next >= TOP_K_CANDIDATES) return;
        shared.keys[next] = key;
        shared.indices[next] = index;
    });
    barrier();
    const u32 total = shared.candidates;
    const auto write = [&](u32 at, u32 index) {
        if (at >= a.k) return;
        ((E *)a.values)[u64(row) * a.k + at] = x[index];
        a.indices[u64(row) * a.k + at] = int(index);
    };
    if (total > TOP_K_CANDIDATES) { // many equal elements
        const u32 reversed = a.largest ? 0 : 0xffffffff;
        for_each_candidate([&](u32 index, u32 key) {
            u32 at = 0;
            for (u32 i = 0; i < a.length && at < a.k; ++i) {
                const u32 other = order_of(x[i]) ^ reversed;
                at += other > key || (other == key && i < index) ? 1 : 0;
            }
            write(at, index);
        });
        return;
    }
    for (u32 own_place = thread_index(); own_place < total; own_place += TOP_K_FEW_THREADS) {
        const u32 key = shared.keys[own_place], index = shared.indices[own_place];
        u32 at = 0;
#pragma unroll 8
        for (u32 i = 0; i < total; ++i) {
            const u32 other = shared.keys[i];
            at += other > key || (other == key && shared.indices[i] < index) ? 1 : 0;
        }
        write(at, index);
    }
}

template <class T> HIPVIT_DEVICE void top_k(const TopKArgs &a) {
    HIPVIT_LDS static u32 part[TOP_K_THREADS];
    if (a.kind == 2) {
        select<int>(a, part);
    } else if (a.kind == 1) {
        select<float>(a, part);
    } else {
        select<T>(a, part);
    }
}

template <class T> HIPVIT_DEVICE void top_k_few(const TopKArgs &a) {
    HIPVIT_LDS static TopKFewShared shared;
    if (a.kind == 2) {
        select_few<int>(a, shared);
    } else if (a.kind == 1) {
        select_few<float>(a, shared);
    } else {
        select_few<T>(a, shared);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(TOP_K_THREADS) name##_##T(TopKArgs a) { name<T>(a); }                                                \
    HIPVIT_KERNEL(TOP_K_FEW_THREADS) name##_few_##T(TopKArgs a) { name##_few<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, top_k)
