// quantize_float8: out = E4M3 of x · factor.
// quantize_float8_rows: out = E4M3 of x · (1/scale), where a row's scale makes its largest magnitude 448. The bits are those of
//   src/ops/float8.rs.
// quantize_int8: rounds x to 256 levels, x ≈ scale · (q − zero), with a scale and a zero point for each row; out = q − 128, since GEMMs
//   multiply signed bytes. The bits are those of src/ops/int8.rs.
// dequantize: out = activation((sums − zero · column_sums) · column_scale · scale + bias) + residual, the epilogue of a GEMM of such bytes.
// dequantize_float8: out = activation(sums · column_scale · scale + bias) + residual, with sums in f32.
//
// Shapes, all row-major with any number of channels:
//   x, out T [rows, channels]; residual T [rows, channels] or null. dequantize's out may alias residual.
//   Quantised bytes [rows, channels]; sums i32 or f32 [rows, channels].
//   ranges f32 [rows, 2] for int8 (scale and zero − 128), or [rows] for FP8 (scale).
//   scales f32 [channels]; column_sums i32 [channels]; bias T [channels] or null.
// Alignment: any, of whole elements; vec128 access, and 4 or 8 bytes at once, where the addresses allow it.
// Accumulator: f32. sums − zero · column_sums is exact in i32: it is Σ (q − zero) · w with |q − zero| ≤ 255 and |w| ≤ 128, over
//   at most 2^16 channels of x.
// Geometry: quantize_int8 and quantize_float8_rows: blocks of ROW_THREADS, a row per wave, or per block (whole_block) for long rows; a
//   thread keeps up to ROW_REGISTERS elements of its row in registers. The others: blocks of ELEMENTWISE_THREADS, a vec128 of T per thread.
#include "quantize.h"
#include "activation.hpp"
#include "float8.hpp"
#include "row.hpp"
#include "row_quantize.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void quantize_float8(const QuantizeArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    const u64 at = vec.row * a.channels + vec.column;
    const T *x = (const T *)a.x + at;
    u8 *to = (u8 *)a.out + at;
    float value[VEC<T>];
    load_vec(x, vec.valid, aligned(x, VEC128_BYTES), value);
    store_float8(to, vec.valid, aligned(to, VEC<T>), a.factor, value);
}

template <class T, class Quantizer> HIPVIT_DEVICE void quantize_rows(const QuantizeArgs &a) {
    HIPVIT_LDS static float scratch[ROW_THREADS / WAVE];
    const RowGroup<ROW_THREADS> group{a.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.rows) return; // a whole wave, or a whole block
    const T *x = (const T *)a.x + u64(index) * a.channels;
    u8 *out = (u8 *)a.out + u64(index) * a.channels;

    auto load = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
        load_vec(x + column, valid, aligned(x, VEC128_BYTES), vec);
    };
    Row<T> row(a.channels, group);
    Quantizer quantizer;
    row.fill(load, [&](u32, float v) { quantizer.include(v); });
    quantizer.agree(a, group, index);
    row.finish(
        load, [](u32, float &) {},
        [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
            quantizer.store(out + column, valid, aligned(out, VEC<T>), vec);
        });
}

template <class T> HIPVIT_DEVICE void quantize_float8_rows(const QuantizeArgs &a) {
    quantize_rows<T, Float8Quantizer>(a);
}
template <class T> HIPVIT_DEVICE void quantize_int8(const QuantizeArgs &a) { quantize_rows<T, Int8Quantizer>(a); }

// Loads VEC<T> words, of which the first `valid` exist; the others become 0.
template <class T> HIPVIT_DEVICE void load_words(const void *from, u64 at, u32 valid, u32 (&x)[VEC<T>]) {
    const u32 *const words = (const u32 *)from + at;
    if (aligned(words, VEC128_BYTES) && valid >= VEC<T>) {
#pragma unroll
        for (u32 w = 0; w < VEC<T>; w += 4) {
            const Vec128 vec = *reinterpret_cast<const Vec128 *>(words + w);
#pragma unroll
            for (u32 i = 0; i < 4; ++i) x[w + i] = vec.word[i];
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) x[i] = i < valid ? words[i] : 0;
    }
}

// Adds the bias to a vector of values, applies the activation, adds the residual, and stores the result.
template <class T>
HIPVIT_DEVICE void store_activated(const DequantizeArgs &a, const MatrixVec<T> &vec, float (&value)[VEC<T>]) {
    const u64 at = vec.row * a.channels + vec.column;
    float add[VEC<T>];
    if (a.bias) {
        const T *bias = (const T *)a.bias + vec.column;
        load_vec(bias, vec.valid, aligned(bias, VEC128_BYTES), add);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += add[i];
    }
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) value[i] = activate(a.activation, value[i]);
    if (a.residual) {
        const T *residual = (const T *)a.residual + at;
        load_vec(residual, vec.valid, aligned(residual, VEC128_BYTES), add);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += add[i];
    }
    T *to = (T *)a.out + at;
    store_vec(to, vec.valid, aligned(to, VEC128_BYTES), value);
}

template <class T> HIPVIT_DEVICE void dequantize(const DequantizeArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    const float *range = (const float *)a.ranges + vec.row * 2;
    const float scale = range[0];
    const int zero = int(range[1]);
    u32 sums[VEC<T>], column_sums[VEC<T>], scales[VEC<T>];
    load_words<T>(a.sums, vec.row * a.channels + vec.column, vec.valid, sums);
    load_words<T>(a.column_sums, vec.column, vec.valid, column_sums);
    load_words<T>(a.scales, vec.column, vec.valid, scales);
    float value[VEC<T>];
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) {
        const int sum = int(sums[i] - u32(zero) * column_sums[i]);
        value[i] = product(product(float(sum), float_of(scales[i])), scale);
    }
    store_activated(a, vec, value);
}

template <class T> HIPVIT_DEVICE void dequantize_float8(const DequantizeArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= a.rows) return;
    const float scale = ((const float *)a.ranges)[vec.row];
    u32 sums[VEC<T>], scales[VEC<T>];
    load_words<T>(a.sums, vec.row * a.channels + vec.column, vec.valid, sums);
    load_words<T>(a.scales, vec.column, vec.valid, scales);
    float value[VEC<T>];
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) value[i] = product(product(float_of(sums[i]), float_of(scales[i])), scale);
    store_activated(a, vec, value);
}

#define FLOAT8_ENTRY(name, T)                                                                                          \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(QuantizeArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(FLOAT8_ENTRY, quantize_float8)

#define ROW_ENTRY(name, T)                                                                                            \
    HIPVIT_KERNEL(ROW_THREADS) name##_##T(QuantizeArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ROW_ENTRY, quantize_int8)
HIPVIT_FOR_DTYPES(ROW_ENTRY, quantize_float8_rows)

#define DEQUANTIZE_ENTRY(name, T)                                                                                      \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(DequantizeArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(DEQUANTIZE_ENTRY, dequantize)
HIPVIT_FOR_DTYPES(DEQUANTIZE_ENTRY, dequantize_float8)
