// strided_copy: copies a view of a tensor, such as a permutation of its axes, a slice with a step, or a repetition.
//
// Shapes: x elements of 1, 2 or 4 bytes, read at offset + Σ index · stride; out the view's extents, row-major. The dtype of the entry does
//   not matter.
// Alignment: any; 16 bytes per thread where rows are contiguous and the addresses allow it.
// Geometry: blocks of STRIDED_THREADS. strided_copy: `width` elements of a row of the view per thread. strided_copy_tiled: the last axis
//   is not contiguous in x, but `tile_axis` is; a block copies a square of both through LDS, so that reads and writes are contiguous.
#include "strided_copy.h"
#include "vec128.hpp"

using namespace hipvit;

template <class E> HIPVIT_DEVICE void copy_rows(const StridedCopyArgs &a) {
    constexpr u32 LAST = STRIDED_AXES - 1;
    const u32 length = a.extents[LAST], per_row = (length + a.width - 1) / a.width;
    const u64 index = u64(block_index()) * STRIDED_THREADS + thread_index(), row = divide(index, per_row);
    const u32 column = u32(index - row * per_row) * a.width;
    u64 rest = row;
    i64 from = i64(a.offset);
    for (int axis = int(LAST) - 1; axis >= 0; --axis) {
        const u64 next = divide(rest, a.extents[axis]);
        from += i64(rest - next * a.extents[axis]) * a.strides[axis];
        rest = next;
    }
    if (rest) return; // beyond the last row
    const i64 stride = a.strides[LAST];
    const E *x = (const E *)a.x + from + i64(column) * stride;
    E *out = (E *)a.out + row * length + column;
    if (a.width * sizeof(E) == VEC128_BYTES && aligned(x, VEC128_BYTES) && aligned(out, VEC128_BYTES)) {
        *reinterpret_cast<Vec128 *>(out) = *reinterpret_cast<const Vec128 *>(x);
        return;
    }
    const u32 valid = length - column < a.width ? length - column : a.width;
    for (u32 i = 0; i < valid; ++i) out[i] = x[i64(i) * stride];
}

template <class E> HIPVIT_DEVICE void copy_tiles(const StridedCopyArgs &a) {
    constexpr u32 LAST = STRIDED_AXES - 1, DOWN = STRIDED_THREADS / STRIDED_TILE;
    HIPVIT_LDS static E tile[STRIDED_TILE][STRIDED_TILE + 4 / sizeof(E)];
    const u32 rows = a.extents[a.tile_axis], columns = a.extents[LAST];
    const u32 across = (columns + STRIDED_TILE - 1) / STRIDED_TILE, down = (rows + STRIDED_TILE - 1) / STRIDED_TILE;
    const u32 first_column = block_index() % across * STRIDED_TILE;
    u32 rest = block_index() / across;
    const u32 first_row = rest % down * STRIDED_TILE;
    rest /= down;
    // The other axes, and the distance of the rows in the result.
    i64 from = i64(a.offset);
    u64 to = 0, size = columns, row_size = 0;
    for (int axis = int(LAST) - 1; axis >= 0; --axis) {
        const u32 extent = a.extents[axis];
        if (u32(axis) == a.tile_axis) {
            row_size = size;
        } else {
            const u32 place = rest % extent;
            rest /= extent;
            from += i64(place) * a.strides[axis];
            to += place * size;
        }
        size *= extent;
    }
    if (rest) return; // the whole block, beyond the last tile
    const u32 lane = thread_index() % STRIDED_TILE, line = thread_index() / STRIDED_TILE;
    const E *x = (const E *)a.x + from;
#pragma unroll
    for (u32 s = 0; s < STRIDED_TILE; s += DOWN) {
        const u32 row = first_row + lane, column = first_column + line + s;
        if (row < rows && column < columns) tile[line + s][lane] = x[i64(row) + i64(column) * a.strides[LAST]];
    }
    barrier();
    E *out = (E *)a.out + to;
#pragma unroll
    for (u32 s = 0; s < STRIDED_TILE; s += DOWN) {
        const u32 row = first_row + line + s, column = first_column + lane;
        if (row < rows && column < columns) out[row * row_size + column] = tile[lane][line + s];
    }
}

// Elements of 4 bytes may be integers in a model of 16 bits.
#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(STRIDED_THREADS) name##_##T(StridedCopyArgs a) {                                                     \
        if (a.element == 4) {                                                                                          \
            copy_rows<u32>(a);                                                                                         \
        } else if (a.element == 2) {                                                                                   \
            copy_rows<u16>(a);                                                                                         \
        } else {                                                                                                       \
            copy_rows<u8>(a);                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    HIPVIT_KERNEL(STRIDED_THREADS) name##_tiled_##T(StridedCopyArgs a) {                                               \
        if (a.element == 4) {                                                                                          \
            copy_tiles<u32>(a);                                                                                        \
        } else if (a.element == 2) {                                                                                   \
            copy_tiles<u16>(a);                                                                                        \
        } else {                                                                                                       \
            copy_tiles<u8>(a);                                                                                         \
        }                                                                                                              \
    }
HIPVIT_FOR_DTYPES(ENTRY, strided_copy)
