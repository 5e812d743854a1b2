// top_k: the k largest or smallest elements of each row in order, and their indices.
//
// Shapes: x T, f32 or i32 [rows, length]; values as x, [rows, k]; indices i32 [rows, k], k ≤ length. All row-major.
// Alignment: any.
// Geometry: blocks of TOP_K_THREADS, a part of a row each. A thread counts the elements that precede its own, which is its place in the
//   result. The row goes through LDS in parts. Threads need no result of another one, so that long rows occupy many blocks.
#include "top_k.h"
#include "device.hpp"
#include "vec128.hpp"

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

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(TOP_K_THREADS) name##_##T(TopKArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, top_k)
