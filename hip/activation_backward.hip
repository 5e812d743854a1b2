// activation_backward: dx = f'(x) · dy for an activation function f, or f(x) / x · dy. activation_backward_sums: also the sum of each chunk of
// rows of dx, before dx is rounded.
//
// Shapes: x, dy, dx T [rows, channels], row-major; dx may alias x or dy. sums f32 [⌈rows / chunk⌉, channels].
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a row per thread. With sums: include/column_sum.hpp.
#include "activation_backward.h"
#include "column_sum.hpp"
#include "slope.hpp"

using namespace hipvit;

template <class T> struct Gradient {
    static constexpr u32 AHEAD = 2;
    struct Raw {
        float value[VEC<T>], dy[VEC<T>];
    };
    const ActivationBackwardArgs &a;

    HIPVIT_DEVICE void load(u64 at, u32 valid, Raw &raw) const {
        const T *const x = (const T *)a.x + at, *const dy = (const T *)a.dy + at;
        load_vec(x, valid, aligned(x, VEC128_BYTES), raw.value);
        load_vec(dy, valid, aligned(dy, VEC128_BYTES), raw.dy);
    }
    HIPVIT_DEVICE void value(u64 at, u32 valid, Raw &raw) const {
        activation_slopes_as<T>(a.activation, a.secant != 0, raw.value);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) raw.value[i] *= raw.dy[i];
        T *const to = (T *)a.dx + at;
        store_vec(to, valid, aligned(to, VEC128_BYTES), raw.value);
    }
};

template <class T> HIPVIT_DEVICE void activation_backward(const ActivationBackwardArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    const Gradient<T> gradient{a};
    typename Gradient<T>::Raw raw;
    const u64 at = vec.row * a.channels + vec.column;
    gradient.load(at, vec.valid, raw);
    gradient.value(at, vec.valid, raw);
}

template <class T> HIPVIT_DEVICE void activation_backward_sums(const ActivationBackwardArgs &a) {
    sum_columns<T>(a.rows, a.channels, a.chunk, a.sums, Gradient<T>{a});
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(ActivationBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, activation_backward)
#define SUMS_ENTRY(name, T)                                                                                            \
    HIPVIT_KERNEL(COLUMN_SUM_VECS * COLUMN_SUM_SLICES) name##_##T(ActivationBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(SUMS_ENTRY, activation_backward_sums)
