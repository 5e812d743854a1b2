// layer_norm: over the channels, after an optional residual.
//
// s = x + residual; out = (s − mean) / √(variance + ε) · weight + bias, with the biased variance; s may be kept.
// All T [rows, channels], weight and bias T [channels]; any number of channels.
// Alignment: any; packs of 16 bytes where the addresses allow it. Accumulator: f32, mean first and then the centred
//   squares, since the mean of squares minus the square of the mean would cancel.
// Geometry: blocks of 256; a wave a row, or a block a row for long rows (whole_block). A row of up to 32 elements a
//   thread stays in registers.
#include "layer_norm.h"
#include "row.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void layer_norm(const LayerNormArgs &a) {
    HIPVIT_LDS static float scratch[ROW_THREADS / WAVE];
    const RowGroup<ROW_THREADS> group{a.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.rows) return; // a whole wave, or a whole block
    const u64 start = u64(index) * a.channels;
    const T *x = (const T *)a.x + start, *residual = (const T *)a.residual + start;
    T *sum = (T *)a.sum + start, *out = (T *)a.out + start;

    auto first = [&](u32 column, u32 valid, float(&pack)[PACK<T>]) {
        load_pack(x + column, valid, aligned(x, 16), pack);
        if (a.residual) {
            float add[PACK<T>];
            load_pack(residual + column, valid, aligned(residual, 16), add);
#pragma unroll
            for (u32 i = 0; i < PACK<T>; ++i) pack[i] += add[i];
        }
        if (a.sum) store_pack(sum + column, valid, aligned(sum, 16), pack);
    };
    // The sum may have taken the place of an operand.
    auto later = [&](u32 column, u32 valid, float(&pack)[PACK<T>]) {
        if (a.sum) {
            load_pack<T>(sum + column, valid, aligned(sum, 16), pack);
        } else {
            first(column, valid, pack);
        }
    };

    Row<T> row(a.channels, group);
    float total = 0.0f;
    row.fill(first, [&](u32, float v) { total += v; });
    const float mean = group.template reduce<Sum>(total) / float(a.channels);
    float squares = 0.0f;
    row.again(later, [&](u32, float v) { squares = multiply_add(v - mean, v - mean, squares); });
    const float variance = group.template reduce<Sum>(squares) / float(a.channels);
    const float inverse = 1.0f / square_root(variance + a.epsilon);

    const T *weight = (const T *)a.weight, *bias = (const T *)a.bias;
    const bool parameters = aligned(weight, 16) && aligned(bias, 16);
    row.finish(
        later, [&](u32, float &v) { v = (v - mean) * inverse; },
        [&](u32 column, u32 valid, float(&pack)[PACK<T>]) {
            float scale[PACK<T>], shift[PACK<T>];
            load_pack(weight + column, valid, parameters, scale);
            load_pack(bias + column, valid, parameters, shift);
#pragma unroll
            for (u32 i = 0; i < PACK<T>; ++i) pack[i] = multiply_add(pack[i], scale[i], shift[i]);
            store_pack(out + column, valid, aligned(out, 16), pack);
        });
}

HIPVIT_KERNEL(ROW_THREADS) layer_norm_f32(LayerNormArgs a) { layer_norm<float>(a); }
HIPVIT_KERNEL(ROW_THREADS) layer_norm_f16(LayerNormArgs a) { layer_norm<f16>(a); }
HIPVIT_KERNEL(ROW_THREADS) layer_norm_bf16(LayerNormArgs a) { layer_norm<bf16>(a); }
