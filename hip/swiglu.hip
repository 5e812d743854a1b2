// swiglu: out = silu(gate) · value, where gate and value are the halves of each row of x + bias.
//
// Shapes: x T [rows, 2, channels], gates first; bias T [2, channels] or null; out T [rows, channels], or
//   bytes: E4M3. All row-major.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a row of the output per thread.
#include "swiglu.h"
#include "activation.hpp"
#include "float8.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void swiglu(const SwiGluArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    float half[2][VEC<T>];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const u64 column = u64(h) * a.channels + vec.column;
        const T *x = (const T *)a.x + vec.row * 2 * a.channels + column;
        load_vec(x, vec.valid, aligned(x, 16), half[h]);
        if (a.bias) {
            const T *bias = (const T *)a.bias + column;
            float add[VEC<T>];
            load_vec(bias, vec.valid, aligned(bias, 16), add);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) half[h][i] += add[i];
        }
    }
    float value[VEC<T>];
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) value[i] = gated(half[0][i], half[0][i]) * half[1][i];
    store_vec_as<T>(a.out, vec.row * a.channels + vec.column, vec.valid, a.float8_factor, value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(SwiGluArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, swiglu)
