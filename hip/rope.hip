// rope: rotates pairs of channels of queries and keys, in place: (a, b) becomes (a cos − b sin, b cos + a sin).
//
// Shapes: x T [images, tokens, channels]; table T [tokens − first, table_heads, head_dim], a head's cosines first. All
//   row-major. Tokens before `first` and channels beyond `heads` heads stay unchanged.
// Alignment: any; vec128 access where head_dim and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, as many pairs of a head per thread as a vec128 has elements. A thread has both elements of its
//   pairs, so that no other thread reads what it overwrites.
#include "rope.h"
#include "rotate.hpp"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void rope(const RopeArgs &a) {
    const u32 half = a.head_dim / 2, rotated = a.tokens - a.first;
    // A row of this matrix is a head of a token.
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), half);
    const u64 row = divide(vec.row, a.heads), image = divide(row, rotated);
    if (image >= a.images) return;
    const u32 head = u32(vec.row - row * a.heads), token = u32(row - image * rotated);

    const T *table = (const T *)a.table + (u64(token) * a.table_heads + head % a.table_heads) * a.head_dim + vec.column;
    float cosine[VEC<T>], sine[VEC<T>];
    load_vec(table, vec.valid, aligned(table, 16), cosine);
    load_vec(table + half, vec.valid, aligned(table + half, 16), sine);

    T *x = (T *)a.x + (image * a.tokens + a.first + token) * a.channels + u64(head) * a.head_dim;
    // The first and the second half of the thread's elements, and how many of each exist.
    T *low = x + (a.halves ? vec.column : 2 * vec.column);
    T *high = low + (a.halves ? half : VEC<T>);
    const u32 both = 2 * vec.valid;
    const u32 low_valid = a.halves ? vec.valid : both < VEC<T> ? both : VEC<T>;
    const u32 high_valid = both - low_valid;
    float first[VEC<T>], second[VEC<T>];
    load_vec(low, low_valid, aligned(low, 16), first);
    load_vec(high, high_valid, aligned(high, 16), second);
    if (a.halves) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) rotate(first[i], second[i], cosine[i], sine[i]);
    } else {
#pragma unroll
        for (u32 i = 0; i < VEC<T> / 2; ++i) {
            rotate(first[2 * i], first[2 * i + 1], cosine[i], sine[i]);
            rotate(second[2 * i], second[2 * i + 1], cosine[VEC<T> / 2 + i], sine[VEC<T> / 2 + i]);
        }
    }
    store_vec(low, low_valid, aligned(low, 16), first);
    store_vec(high, high_valid, aligned(high, 16), second);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(RopeArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, rope)
