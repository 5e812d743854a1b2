// swiglu: out = silu(gate) · value, where gate and value are the halves of each row of x + bias.
//
// swiglu_norm: g = silu(gate) · value for x without a bias. Then out = (g − mean(g)) / √(variance(g) + ε) · weight + bias over the first
// `normed` channels. The variance is the biased one. Beyond the normed channels the result is 0. g is neither rounded to T nor stored.
//
// Shapes: x T [rows, 2, channels], gates first; swiglu's bias T [2, channels] or null; weight and swiglu_norm's bias T [channels];
//   out T [rows, channels], or bytes: E4M3. All row-major.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32. The norm sums the mean first, then the squares of the centred values.
// Geometry: swiglu: blocks of ELEMENTWISE_THREADS, a vec128 of a row of the output per thread. swiglu_norm: blocks
//   of SWIGLU_NORM_THREADS; a row per wave, or per block (whole_block) for rows longer than SWIGLU_NORM_ROW. A thread keeps a wave's share
//   of a row of SWIGLU_NORM_ROW channels in registers, or ROW_REGISTERS elements if rows are not whole vec128s, and computes the rest again.
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
    for (u32 i = 0; i < VEC<T>; ++i) value[i] = gated_as<T>(half[0][i], half[0][i]) * half[1][i];
    store_vec_as<T>(a.out, vec.row * a.channels + vec.column, vec.valid, a.float8_factor, value);
}

// Norms any row.
template <class T, class Group>
HIPVIT_DEVICE void swiglu_norm_any(const SwiGluNormArgs &a, const Group &group, u32 index) {
    const T *gates = (const T *)a.x + u64(index) * 2 * a.channels, *values = gates + a.channels;
    const bool vectors = aligned(gates, VEC128_BYTES) && aligned(values, VEC128_BYTES);

    auto load = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
        float value[VEC<T>];
        load_vec(gates + column, valid, vectors, vec);
        load_vec(values + column, valid, vectors, value);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) vec[i] = gated_as<T>(vec[i], vec[i]) * value[i];
    };
    Row<T> row(a.channels, group);
    float total = 0.0f;
    row.fill(load, [&](u32 column, float v) { total += column < a.normed ? v : 0.0f; });
    const float mean = group.template reduce<Sum>(total) / float(a.normed);
    float squares = 0.0f;
    row.again(load, [&](u32 column, float v) {
        const float centred = column < a.normed ? v - mean : 0.0f;
        squares = multiply_add(centred, centred, squares);
    });
    const float variance = group.template reduce<Sum>(squares) / float(a.normed);
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
            for (u32 i = 0; i < VEC<T>; ++i)
                vec[i] = column + i < a.normed ? multiply_add(vec[i], scale[i], shift[i]) : 0.0f;
            store_vec_as<T>(a.out, u64(index) * a.channels + column, valid, a.float8_factor, vec);
        });
}

template <class T> using GatedRow = PackedRow<T, SWIGLU_NORM_ROW / WAVE>;

// Norms a row of whole vec128s at aligned addresses that fits the group's registers.
template <class T, class Group>
HIPVIT_DEVICE void swiglu_norm_vectors(const SwiGluNormArgs &a, const Group &group, u32 index) {
    const u32 vecs = a.channels / VEC<T>;
    const Vec<T> *const x = (const Vec<T> *)a.x + u64(index) * 2 * vecs;
    const GatedRow<T> gates(x, vecs, group), values(x + vecs, vecs, group);

    float gate[gates.KEPT][VEC<T>], total = 0.0f;
    // Sets the elements beyond the normed ones to a value that does not change the sums.
    auto fill_up = [&](u32 at, u32 s, float value) {
        if ((at + 1) * VEC<T> <= a.normed) return;
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i)
            if (at * VEC<T> + i >= a.normed) gate[s][i] = value;
    };
    gates.for_each_kept([&](const Vec<T> &vec, u32 at, u32 s) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float g = vec[i];
            gate[s][i] = gated_as<T>(g, g) * values.kept[s][i];
        }
        fill_up(at, s, 0.0f);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) total += gate[s][i];
    });
    const float mean = group.template reduce<Sum>(total) / float(a.normed);
    float squares = 0.0f;
    gates.for_each_kept([&](const Vec<T> &, u32 at, u32 s) {
        fill_up(at, s, mean);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float centred = gate[s][i] - mean;
            squares = multiply_add(centred, centred, squares);
        }
    });
    const float variance = group.template reduce<Sum>(squares) / float(a.normed);
    const float inverse = 1.0f / square_root(variance + a.epsilon);

    const Vec<T> *weight = (const Vec<T> *)a.weight, *bias = (const Vec<T> *)a.bias;
    gates.for_each_kept([&](const Vec<T> &, u32 at, u32 s) {
        const Vec<T> scale{weight[at].whole}, shift{bias[at].whole};
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float normal = (gate[s][i] - mean) * inverse;
            gate[s][i] = multiply_add(normal, scale[i], shift[i]);
        }
        fill_up(at, s, 0.0f);
        store_vec128_as<T>(a.out, u64(index) * a.channels + at * VEC<T>, a.float8_factor, gate[s]);
    });
}

template <class T> HIPVIT_DEVICE void swiglu_norm(const SwiGluNormArgs &a) {
    HIPVIT_LDS static float scratch[SWIGLU_NORM_THREADS / WAVE];
    const RowGroup<SWIGLU_NORM_THREADS> group{a.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.rows) return; // a whole wave, or a whole block
    const u64 addresses = (u64)a.x | (u64)a.out | (u64)a.weight | (u64)a.bias;
    const bool vectors = a.channels % VEC<T> == 0 && addresses % VEC128_BYTES == 0;
    if (vectors && a.channels <= GatedRow<T>::KEPT * VEC<T> * group.size()) {
        swiglu_norm_vectors<T>(a, group, index);
    } else {
        swiglu_norm_any<T>(a, group, index);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(SwiGluArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, swiglu)

#define NORM_ENTRY(name, T)                                                                                            \
    HIPVIT_KERNEL(SWIGLU_NORM_THREADS) name##_##T(SwiGluNormArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(NORM_ENTRY, swiglu_norm)
