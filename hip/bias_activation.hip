// bias_activation: out = activation(x + bias) + residual, the epilogue of a GEMM.
//
// Shapes: x, residual (or null), out T [rows, channels]; bias T [channels] or null. All row-major; out may alias x or
//   residual; or out is bytes, E4M3, and aliases no input.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a row per thread.
#include "bias_activation.h"
#include "activation.hpp"
#include "float8.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void bias_activation(const BiasActivationArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    const u64 at = vec.row * a.channels + vec.column;
    const T *x = (const T *)a.x + at;
    float value[VEC<T>];
    load_vec(x, vec.valid, aligned(x, 16), value);
    if (a.bias) {
        const T *bias = (const T *)a.bias + vec.column;
        float add[VEC<T>];
        load_vec(bias, vec.valid, aligned(bias, 16), add);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += add[i];
    }
    activate_as<T>(a.activation, value);
    if (a.residual) {
        const T *residual = (const T *)a.residual + at;
        float add[VEC<T>];
        load_vec(residual, vec.valid, aligned(residual, 16), add);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += add[i];
    }
    store_vec_as<T>(a.out, at, vec.valid, a.float8_factor, value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(BiasActivationArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, bias_activation)
