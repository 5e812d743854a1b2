// permute_tokens: puts the tokens of each image's grid in another order, by rows or by windows.
//
// Shapes: x T [images, from.tokens, channels]; out T [images, to.tokens, channels]. All row-major.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a token's channels per thread.
#include "permute_tokens.h"
#include "vec128.hpp"

using namespace hipvit;

// Computes the row and column of a token. Returns false for padding.
HIPVIT_DEVICE bool cell_of(const GridOrder &order, const unsigned (&grid)[2], u32 token, u32 (&cell)[2]) {
    const u32 size = order.window[0] * order.window[1], window = token / size, inner = token % size;
    const u32 width = order.transposed ? order.window[0] : order.window[1];
    const u32 major = inner / width, minor = inner % width;
    cell[0] = window / order.across * order.window[0] + (order.transposed ? minor : major);
    cell[1] = window % order.across * order.window[1] + (order.transposed ? major : minor);
    bool exists = true;
#pragma unroll
    for (u32 axis = 0; axis < 2; ++axis) {
        exists &= cell[axis] < order.rolled[axis];
        cell[axis] += order.shift[axis];
        if (cell[axis] >= order.rolled[axis]) cell[axis] -= order.rolled[axis];
        exists &= cell[axis] < grid[axis];
    }
    return exists;
}

// The inverse of cell_of.
HIPVIT_DEVICE u32 token_of(const GridOrder &order, const u32 (&cell)[2]) {
    u32 window[2], inner[2];
#pragma unroll
    for (u32 axis = 0; axis < 2; ++axis) {
        const u32 shift = order.shift[axis];
        const u32 place = cell[axis] >= shift ? cell[axis] - shift : cell[axis] + order.rolled[axis] - shift;
        window[axis] = place / order.window[axis];
        inner[axis] = place - window[axis] * order.window[axis];
    }
    const u32 at = order.transposed ? inner[1] * order.window[0] + inner[0] : inner[0] * order.window[1] + inner[1];
    return (window[0] * order.across + window[1]) * order.window[0] * order.window[1] + at;
}

template <class T> HIPVIT_DEVICE void permute_tokens(const PermuteTokensArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= u64(a.images) * a.to.tokens) return;
    const u64 image = divide(vec.row, a.to.tokens);
    u32 cell[2];
    float value[VEC<T>] = {};
    if (cell_of(a.to, a.grid, u32(vec.row - image * a.to.tokens), cell)) {
        const u64 row = image * a.from.tokens + token_of(a.from, cell);
        const T *from = (const T *)a.x + row * a.channels + vec.column;
        load_vec(from, vec.valid, aligned(from, VEC128_BYTES), value);
    }
    T *to = (T *)a.out + vec.row * a.channels + vec.column;
    store_vec(to, vec.valid, aligned(to, VEC128_BYTES), value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(PermuteTokensArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, permute_tokens)
