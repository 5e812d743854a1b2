// add: out = factor · gamma · x + y. A residual, LayerScale, a scalar factor, or a table that all images share.
//
// Shapes: x, out T [rows, channels]; gamma T [channels] or null; y T [y_rows, channels] or null, row r of the output
//   taking row r mod y_rows. All row-major; out may alias x, and y if y_rows = rows.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a row per thread.
#include "add.h"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void add(const AddArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    const u64 at = vec.row * a.channels + vec.column;
    const T *x = (const T *)a.x + at;
    float value[VEC<T>], other[VEC<T>];
    load_vec(x, vec.valid, aligned(x, 16), value);
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) value[i] *= a.factor;
    if (a.gamma) {
        const T *gamma = (const T *)a.gamma + vec.column;
        load_vec(gamma, vec.valid, aligned(gamma, 16), other);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] *= other[i];
    }
    if (a.y) {
        const T *y = (const T *)a.y + vec.row % a.y_rows * a.channels + vec.column;
        load_vec(y, vec.valid, aligned(y, 16), other);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += other[i];
    }
    T *to = (T *)a.out + at;
    store_vec(to, vec.valid, aligned(to, 16), value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(AddArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, add)
