// transpose: out = gamma · xᵀ of each image, plus y or times y. Around a linear layer it makes the layer mix tokens.
//
// Shapes: x T [images, rows, columns]; gamma T [rows] or null; y T [images, kept, width] or null; out T
//   [images, kept, width], kept ≤ columns, width ≥ rows. All row-major; out may alias y.
// Alignment: any; vec128 access where the extents and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of TRANSPOSE_THREADS, a tile of TRANSPOSE_TILE × TRANSPOSE_TILE each, through LDS, so that both sides are
//   accessed along their rows. Rows of the tile are padded by a word: its columns then lie in different banks, but for pairs.
#include "transpose.h"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void transpose(const TransposeArgs &a) {
    constexpr u32 VECS = TRANSPOSE_TILE / VEC<T>, STEP = TRANSPOSE_THREADS / VECS;
    constexpr u32 STRIDE = TRANSPOSE_TILE + 4 / sizeof(T);
    HIPVIT_LDS static T tile[TRANSPOSE_TILE * STRIDE];

    const u32 down = (a.width + TRANSPOSE_TILE - 1) / TRANSPOSE_TILE;
    const u32 across = (a.kept + TRANSPOSE_TILE - 1) / TRANSPOSE_TILE;
    const u32 image = block_index() / (down * across), place = block_index() % (down * across);
    if (image >= a.images) return; // the whole block
    const u32 row = place / across * TRANSPOSE_TILE, column = place % across * TRANSPOSE_TILE;
    // The thread's lines of the tile are STEP apart; its elements begin here in each.
    const u32 line = thread_index() / VECS, at = thread_index() % VECS * VEC<T>;

    const T *x = (const T *)a.x + u64(image) * a.rows * a.columns + column + at;
    // Columns that are not kept are read with the others: so whole vectors are, up to the end of a padded row.
    const u32 left = column + at < a.columns ? a.columns - column - at : 0;
#pragma unroll
    for (u32 r = line; r < TRANSPOSE_TILE; r += STEP) {
        const T *from = x + u64(row + r) * a.columns;
        float value[VEC<T>];
        load_vec(from, row + r < a.rows ? left : 0, aligned(from, 16), value);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) tile[r * STRIDE + at + i] = from_float<T>(value[i]);
    }
    barrier();

    if (row + at >= a.width) return;
    const u32 valid = a.width - row - at;
    float gamma[VEC<T>];
    if (a.gamma) {
        const T *from = (const T *)a.gamma + row + at;
        load_vec(from, row + at < a.rows ? a.rows - row - at : 0, aligned(from, 16), gamma);
    }
    const u64 first = u64(image) * a.kept * a.width + row + at;
#pragma unroll
    for (u32 c = line; c < TRANSPOSE_TILE; c += STEP) {
        if (column + c >= a.kept) break;
        const u64 to = first + u64(column + c) * a.width;
        float value[VEC<T>];
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] = to_float(tile[(at + i) * STRIDE + c]);
        if (a.gamma) {
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) value[i] *= gamma[i];
        }
        if (a.y) {
            const T *y = (const T *)a.y + to;
            float other[VEC<T>];
            load_vec(y, valid, aligned(y, 16), other);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) value[i] = a.multiply ? value[i] * other[i] : value[i] + other[i];
        }
        T *out = (T *)a.out + to;
        store_vec(out, valid, aligned(out, 16), value);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(TRANSPOSE_THREADS) name##_##T(TransposeArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, transpose)
