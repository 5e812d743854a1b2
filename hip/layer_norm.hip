// layer_norm: s = x + residual; out = (s − mean(s)) / √(variance(s) + ε) · weight + bias over the channels, with the
// biased variance; s can be stored too. rms_norm: out = s / √(mean(s²) + ε) · weight. Of heads, each is a row.
//
// Shapes: x, residual (or null), sum (or null), out T [rows, channels]; weight, bias T [channels]. All row-major, with
//   any number of channels. sum may alias x or residual, out may alias x; or out is bytes, E4M3, and
//   aliases no input.
// Alignment: any; vec128 access where the addresses allow it.
// Accumulator: f32. First the mean, then the squares of the centred values: mean(s²) − mean(s)² would cancel.
// Geometry: blocks of ROW_THREADS, of FEW_ROWS_THREADS by the entries `_few`, for few rows, or of WIDE_ROW_THREADS by the
//   entries `_wide`, for longer rows; a row per wave, or per block (whole_block) where it has more than WIDE_ROW channels. A
//   thread keeps up to ROW_REGISTERS elements of its row in registers; by the entries `_wide`, as many as a wave needs for
//   WIDE_ROW. All entries compute the same bits where a row is a wave's.
#include "layer_norm.h"
#include "float8.hpp"
#include "row.hpp"

using namespace hipvit;

// Any row, of x or x + residual.
template <class T, bool RMS, class Group>
HIPVIT_DEVICE void normalize_any(const LayerNormArgs &a, const Group &group, u32 index) {
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
    // The sum may alias an operand, which is not read after this.
    auto load_and_store_sum = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
        load(column, valid, vec);
        if (a.sum) store_vec(sum + column, valid, aligned(sum, 16), vec);
    };

    // No registers are kept: this must not need more than the path for whole vec128s.
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
    row.finish(
        load_and_store_sum, [&](u32, float &v) { v = (v - mean) * inverse; },
        [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
            float scale[VEC<T>], shift[VEC<T>];
            load_vec(weight + column, valid, parameters, scale);
            if constexpr (!RMS) load_vec(bias + column, valid, parameters, shift);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i)
                vec[i] = RMS ? vec[i] * scale[i] : multiply_add(vec[i], scale[i], shift[i]);
            store_vec_as<T>(a.out, start + column, valid, a.float8_factor, vec);
        });
}

// A row of whole vec128s at aligned addresses, without residual and sum: what models have. Many waves fit on a
// multiprocessor, and nothing comes between the loads. EARLY: weight and bias are loaded with the row, which takes registers
// and hides their latency.
template <class T, bool RMS, bool EARLY, u32 REGISTERS, class Group>
HIPVIT_DEVICE void normalize_vectors(const LayerNormArgs &a, const Group &group, u32 index) {
    const u32 vecs = a.channels / VEC<T>;
    const PackedRow<T, REGISTERS> row((const Vec<T> *)a.x + u64(index) * vecs, vecs, group);
    // Restricted: loads may come before earlier stores of the result, which is x element by element at most.
    const Vec<T> *__restrict__ weight = (const Vec<T> *)a.weight, *__restrict__ bias = (const Vec<T> *)a.bias;
    const u64 start = u64(index) * a.channels;

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
    row.for_each([&](const Vec<T> &vec, u32 at, u32 s) {
        Vec<T> scale, shift;
        if (s < LOADED) {
            scale = scales[s];
            if constexpr (!RMS) shift = shifts[s];
        } else {
            scale.whole = weight[at].whole;
            if constexpr (!RMS) shift.whole = bias[at].whole;
        }
        float result[VEC<T>];
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const float normal = (vec[i] - mean) * inverse, factor = scale[i];
            result[i] = RMS ? normal * factor : multiply_add(normal, factor, shift[i]);
        }
        store_vec128_as<T>(a.out, start + at * VEC<T>, a.float8_factor, result);
    });
}

template <class T, bool RMS, int THREADS, u32 REGISTERS = ROW_REGISTERS>
HIPVIT_DEVICE void normalize(const LayerNormArgs &a) {
    HIPVIT_LDS static float scratch[THREADS / WAVE];
    const RowGroup<THREADS> group{a.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.rows) return; // a whole wave, or a whole block
    // The null bias of rms_norm is aligned too.
    const u64 addresses = (u64)a.x | (u64)a.out | (u64)a.weight | (u64)a.bias;
    if (a.channels % VEC<T> == 0 && addresses % VEC128_BYTES == 0 && !a.residual && !a.sum) {
        normalize_vectors<T, RMS, THREADS == FEW_ROWS_THREADS, REGISTERS>(a, group, index);
    } else {
        normalize_any<T, RMS>(a, group, index);
    }
}

template <class T, bool RMS> HIPVIT_DEVICE void normalize_wide(const LayerNormArgs &a) {
    normalize<T, RMS, WIDE_ROW_THREADS, WIDE_ROW / WAVE>(a);
}

#define ENTRIES(name, RMS, T)                                                                                          \
    HIPVIT_KERNEL(ROW_THREADS) name##_##T(LayerNormArgs a) { normalize<T, RMS, ROW_THREADS>(a); }                      \
    HIPVIT_KERNEL(FEW_ROWS_THREADS) name##_few_##T(LayerNormArgs a) { normalize<T, RMS, FEW_ROWS_THREADS>(a); }        \
    HIPVIT_KERNEL(WIDE_ROW_THREADS) name##_wide_##T(LayerNormArgs a) { normalize_wide<T, RMS>(a); }
#define ENTRY(name, T) ENTRIES(name, false, T)
HIPVIT_FOR_DTYPES(ENTRY, layer_norm)
#define RMS_ENTRY(name, T) ENTRIES(name, true, T)
HIPVIT_FOR_DTYPES(RMS_ENTRY, rms_norm)
