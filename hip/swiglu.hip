// swiglu: out = silu(gate) · value, where gate and value are the halves of each row of x + bias.
// swiglu_norm: g = silu(gate) · value, of x without a bias; out = (g − mean(g)) / √(variance(g) + ε) · weight + bias over the
// channels, with the biased variance. g is never rounded to T, nor stored.
//
// Shapes: x T [rows, 2, channels], gates first; swiglu's bias T [2, channels] or null; weight and swiglu_norm's bias T [channels];
//   out T [rows, channels], or bytes: E4M3. All row-major.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32. Of the norm first the mean, then the squares of the centred values.
// Geometry: swiglu: blocks of ELEMENTWISE_THREADS, a vec128 of a row of the output per thread. swiglu_norm: a row per block of
//   SWIGLU_NORM_THREADS; a thread keeps up to ROW_REGISTERS elements of it in registers, and computes others again.
#include "swiglu.h"
#include "activation.hpp"
#include "float8.hpp"
#include "row.hpp"

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

template <class T> HIPVIT_DEVICE void swiglu_norm(const SwiGluNormArgs &a) {
    HIPVIT_LDS static float scratch[SWIGLU_NORM_THREADS / WAVE];
    const RowGroup<SWIGLU_NORM_THREADS> group{true, scratch};
    const u32 index = group.row();
    if (index >= a.rows) return; // a whole block
    const T *gates = (const T *)a.x + u64(index) * 2 * a.channels, *values = gates + a.channels;
    const bool vectors = aligned(gates, VEC128_BYTES) && aligned(values, VEC128_BYTES);

    auto load = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
        float value[VEC<T>];
        load_vec(gates + column, valid, vectors, vec);
        load_vec(values + column, valid, vectors, value);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) vec[i] = gated(vec[i], vec[i]) * value[i];
    };
    Row<T> row(a.channels, group);
    float total = 0.0f;
    row.fill(load, [&](u32, float v) { total += v; });
    const float mean = group.template reduce<Sum>(total) / float(a.channels);
    float squares = 0.0f;
    row.again(load, [&](u32, float v) { squares = multiply_add(v - mean, v - mean, squares); });
    const float variance = group.template reduce<Sum>(squares) / float(a.channels);
    const float inverse = 1.0f / square_root(variance + a.epsilon);

    const T *weight = (const T *)a.weight, *bias = (const T *)a.bias;
    const bool parameters = aligned(weight, VEC128_BYTES) && aligned(bias, VEC128_BYTES);
    row.finish(
        load, [&](u32, float &v) { v = (v - mean) * inverse; },
        [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
            float scale[VEC<T>], shift[VEC<T>];
            load_vec(weight + column, valid, parameters, scale);
            load_vec(bias + column, valid, parameters, shift);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) vec[i] = multiply_add(vec[i], scale[i], shift[i]);
            store_vec_as<T>(a.out, u64(index) * a.channels + column, valid, a.float8_factor, vec);
        });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(SwiGluArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, swiglu)

#define NORM_ENTRY(name, T)                                                                                            \
    HIPVIT_KERNEL(SWIGLU_NORM_THREADS) name##_##T(SwiGluNormArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(NORM_ENTRY, swiglu_norm)
