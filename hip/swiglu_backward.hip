// swiglu_backward: d gate = silu'(gate) · value · dy and d value = silu(gate) · dy, where gate and value are the halves of each row of x.
//
// Shapes: x, dx T [rows, 2, channels], gates first; dy T [rows, channels]. All row-major; dx may alias x.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a row of dy per thread.
#include "swiglu_backward.h"
#include "slope.hpp"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void swiglu_backward(const SwiGluBackwardArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    const u64 at = vec.row * 2 * a.channels + vec.column;
    const T *gates = (const T *)a.x + at, *values = gates + a.channels;
    const T *dy = (const T *)a.dy + vec.row * a.channels + vec.column;
    float gate[VEC<T>], value[VEC<T>], gradient[VEC<T>];
    load_vec(gates, vec.valid, aligned(gates, VEC128_BYTES), gate);
    load_vec(values, vec.valid, aligned(values, VEC128_BYTES), value);
    load_vec(dy, vec.valid, aligned(dy, VEC128_BYTES), gradient);
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) {
        const float slope = gated_slope(gate[i], gate[i], 1.0f, a.secant != 0);
        const float silu = gated(gate[i], gate[i]);
        gate[i] = slope * value[i] * gradient[i];
        value[i] = silu * gradient[i];
    }
    T *to_gates = (T *)a.dx + at, *to_values = to_gates + a.channels;
    store_vec(to_gates, vec.valid, aligned(to_gates, VEC128_BYTES), gate);
    store_vec(to_values, vec.valid, aligned(to_values, VEC128_BYTES), value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(SwiGluBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, swiglu_backward)
