// Layer and RMS normalisation of a row by a group of threads, for kernels that differ in what they do with the result. `Args` has the
// fields of LayerNormArgs. `result` receives the normalised elements in f32, before they are rounded to T.
#pragma once
#include "row.hpp"

namespace hipvit {

// Normalises any row of x or x + residual. Calls result.any(row, load, normalize): load(column, valid, vec) is for Row::finish, and
// normalize(column, valid, vec) turns what it loads into the result. load also stores the sum, if there is one: call it once.
template <class T, bool RMS, class Args, class Group, class Result>
HIPVIT_DEVICE void normalize_any(const Args &a, const Group &group, u32 index, const Result &result) {
    const u64 start = u64(index) * a.channels;
    const T *x = (const T *)a.x + start, *residual = (const T *)a.residual + start;
    T *sum = (T *)a.sum + start;

    auto load = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
        load_vec(x + column, valid, aligned(x, 16), vec);
        if (a.residual) {
            float add[VEC<T>];
            load_vec(residual + column, valid, aligned(residual, 16), add);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) vec[i] += add[i];
        }
    };
    // The sum may alias an operand: the operand is not read again.
    auto load_and_store_sum = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
        load(column, valid, vec);
        if (a.sum) store_vec(sum + column, valid, aligned(sum, 16), vec);
    };

    // Keeps no elements in registers: this path must not need more of them than normalize_vectors.
    Row<T, 0> row(a.channels, group);
    float mean = 0.0f;
    if constexpr (!RMS) {
        float total = 0.0f;
        row.fill(load, [&](u32, float v) { total += v; });
        mean = group.template reduce<Sum>(total) / float(a.channels);
    }
    float squares = 0.0f;
    row.again(load, [&](u32, float v) { squares = multiply_add(v - mean, v - mean, squares); });
    const float variance = group.template reduce<Sum>(squares) / float(a.channels);
    const float inverse = 1.0f / square_root(variance + a.epsilon);

    const T *weight = (const T *)a.weight, *bias = (const T *)a.bias;
    const bool parameters = aligned(weight, 16) && (RMS || aligned(bias, 16));
    result.any(row, load_and_store_sum, [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
        float scale[VEC<T>], shift[VEC<T>];
        load_vec(weight + column, valid, parameters, scale);
        if constexpr (!RMS) load_vec(bias + column, valid, parameters, shift);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float normal = (vec[i] - mean) * inverse;
            vec[i] = RMS ? normal * scale[i] : multiply_add(normal, scale[i], shift[i]);
        }
    });
}

// Normalises a row of whole vec128s at aligned addresses, without residual and sum: the usual case. It lets many waves fit on a
// multiprocessor, and nothing comes between the loads. EARLY: weight and bias are loaded with the row, which takes registers and
// hides their latency. Calls result.vectors(row, normalize): normalize(vec, at, s, to) takes the arguments of the row's for_each.
template <class T, bool RMS, bool EARLY, u32 REGISTERS, class Args, class Group, class Result>
HIPVIT_DEVICE void normalize_vectors(const Args &a, const Group &group, u32 index, const Result &result) {
    const u32 vecs = a.channels / VEC<T>;
    PackedRow<T, REGISTERS> row((const Vec<T> *)a.x + u64(index) * vecs, vecs, group);
    // Restricted: loads may move above earlier stores of the result, which aliases x element by element at most.
    const Vec<T> *__restrict__ weight = (const Vec<T> *)a.weight, *__restrict__ bias = (const Vec<T> *)a.bias;

    constexpr u32 LOADED = EARLY ? row.KEPT : 0;
    Vec<T> scales[LOADED + 1], shifts[LOADED + 1];
#pragma unroll
    for (u32 s = 0; s < LOADED; ++s) {
        const u32 at = row.rank + s * row.size;
        if (at < vecs) {
            scales[s].whole = weight[at].whole;
            if constexpr (!RMS) shifts[s].whole = bias[at].whole;
        }
    }
    float mean = 0.0f;
    if constexpr (!RMS) {
        float total = 0.0f;
        row.for_each([&](const Vec<T> &vec, u32, u32) {
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) total += vec[i];
        });
        mean = group.template reduce<Sum>(total) / float(a.channels);
    }
    float squares = 0.0f;
    row.for_each([&](const Vec<T> &vec, u32, u32) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float centred = vec[i] - mean;
            squares = multiply_add(centred, centred, squares);
        }
    });
    const float variance = group.template reduce<Sum>(squares) / float(a.channels);
    const float inverse = 1.0f / square_root(variance + a.epsilon);
    result.vectors(row, [&](const Vec<T> &vec, u32 at, u32 s, float(&to)[VEC<T>]) {
        Vec<T> scale, shift;
        if (s < LOADED) {
            scale = scales[s];
            if constexpr (!RMS) shift = shifts[s];
        } else {
            scale.whole = weight[at].whole;
            if constexpr (!RMS) shift.whole = bias[at].whole;
        }
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float normal = (vec[i] - mean) * inverse, factor = scale[i];
            to[i] = RMS ? normal * factor : multiply_add(normal, factor, shift[i]);
        }
    });
}

} // namespace hipvit
