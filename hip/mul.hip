// mul: out = x · y, where y may repeat.
//
// Shapes: x, out T [rows, channels]; y T [y_rows, channels], row r of the output taking row r mod y_rows. All row-major; out may
//   alias x, and y if y_rows = rows.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a row per thread.
#include "mul.h"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void mul(const MulArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    const u64 at = vec.row * a.channels + vec.column;
    const T *x = (const T *)a.x + at;
    const T *y = (const T *)a.y + vec.row % a.y_rows * a.channels + vec.column;
    float value[VEC<T>], factor[VEC<T>];
    load_vec(x, vec.valid, aligned(x, VEC128_BYTES), value);
    load_vec(y, vec.valid, aligned(y, VEC128_BYTES), factor);
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) value[i] *= factor[i];
    T *to = (T *)a.out + at;
    store_vec(to, vec.valid, aligned(to, VEC128_BYTES), value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(MulArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, mul)
