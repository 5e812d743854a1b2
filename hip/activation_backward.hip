// activation_backward: dx = f'(x) · dy for an activation function f, or f(x) / x · dy.
//
// Shapes: x, dy, dx T [rows, channels], row-major; dx may alias x or dy.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a row per thread.
#include "activation_backward.h"
#include "slope.hpp"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void activation_backward(const ActivationBackwardArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    const u64 at = vec.row * a.channels + vec.column;
    const T *x = (const T *)a.x + at, *dy = (const T *)a.dy + at;
    float value[VEC<T>], gradient[VEC<T>];
    load_vec(x, vec.valid, aligned(x, VEC128_BYTES), value);
    load_vec(dy, vec.valid, aligned(dy, VEC128_BYTES), gradient);
    activation_slopes_as<T>(a.activation, a.secant != 0, value);
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) gradient[i] *= value[i];
    T *to = (T *)a.dx + at;
    store_vec(to, vec.valid, aligned(to, VEC128_BYTES), gradient);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(ActivationBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, activation_backward)
