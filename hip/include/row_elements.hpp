// The elements of a long row that a block shares, and the order of elements.
#pragma once
#include "vec128.hpp"

namespace hipvit {

// A number that orders as x does. NaN is the largest, and both zeros are equal.
HIPVIT_DEVICE u32 order_of(float x) {
    if (x != x) return 0xffffffff;
    const u32 bits = bits_of(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

HIPVIT_DEVICE u32 order_of(f16 x) { return order_of(to_float(x)); }
HIPVIT_DEVICE u32 order_of(bf16 x) { return order_of(to_float(x)); }
HIPVIT_DEVICE u32 order_of(int x) { return u32(x) ^ 0x80000000; }

// Calls `use` with the index and the value of each element of a row that this thread of THREADS looks at. A vec128 per step; the elements
// before the first aligned one, and after the last one, are single. UNROLL vec128s are loaded at a time.
template <u32 THREADS, int UNROLL, class E, class Use>
HIPVIT_DEVICE void for_each_element(const E *x, u32 length, const Use &use) {
    const u32 misaligned = u32((u64)x % VEC128_BYTES) / u32(sizeof(E));
    const u32 unaligned = misaligned ? VEC<E> - misaligned : 0, first = unaligned < length ? unaligned : length;
    const u32 vecs = (length - first) / VEC<E>, last = first + vecs * VEC<E>;
    if (thread_index() < first) use(thread_index(), x[thread_index()]);
#pragma unroll UNROLL
    for (u32 v = thread_index(); v < vecs; v += THREADS) {
        Vec<E> vec;
        vec.whole = *reinterpret_cast<const Vec128 *>(x + first + v * VEC<E>);
#pragma unroll
        for (u32 i = 0; i < VEC<E>; ++i) use(first + v * VEC<E> + i, vec.element[i]);
    }
    const u32 index = last + thread_index();
    if (index < length) use(index, x[index]);
}

} // namespace hipvit
