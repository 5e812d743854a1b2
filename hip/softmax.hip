// softmax: of masked and scaled scores, for attention by two matrix products.
//
// T [B,H,Nq,Nk] → the same, in place if wished: softmax over the visible keys of scale · x; invisible keys get 0, and so
// does a row that sees no key. Any number of keys.
// Alignment: any; packs of 16 bytes where the addresses allow it. Accumulator: f32, the row's maximum subtracted.
// Geometry: blocks of 256; a wave a row, or a block a row for long rows (whole_block). A row of up to 32 elements a
//   thread (8,192 a block) stays in registers.
#include "softmax.h"
#include "row.hpp"
#include "visible.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void softmax(const SoftmaxArgs &a) {
    HIPVIT_LDS static float scratch[ROW_THREADS / WAVE];
    const RowGroup<ROW_THREADS> group{a.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.images * a.heads * a.queries) return; // a whole wave, or a whole block
    const u32 query = index % a.queries, image = index / a.queries / a.heads;
    const T *x = (const T *)a.x + u64(index) * a.keys;
    T *out = (T *)a.out + u64(index) * a.keys;
    const u8 *key_mask = a.visible.key_mask ? a.visible.key_mask + u64(image) * a.keys : nullptr;

    const KeyRange range(a.visible, query, a.keys);
    // In powers of two: e^(scale·x) = 2^(factor·x).
    const float factor = a.scale * 1.44269504f;
    auto load = [&](u32 column, u32 valid, float(&pack)[PACK<T>]) {
        load_pack(x + column, valid, aligned(x, 16), pack);
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) {
            const bool seen = i < valid && range.contains(column + i) && (!key_mask || key_mask[column + i]);
            pack[i] = seen ? pack[i] * factor : -infinity();
        }
    };

    Row<T> row(a.keys, group);
    float top = -infinity();
    row.fill(load, [&](u32, float v) { top = larger(top, v); });
    top = group.template reduce<Max>(top);
    if (top == -infinity()) top = 0.0f; // no key: 2^(−∞ − 0) is 0
    float total = 0.0f;
    row.again(load, [&](u32, float v) { total += fast_exp2(v - top); });
    total = group.template reduce<Sum>(total);
    const float inverse = total > 0.0f ? 1.0f / total : total; // 0 stays 0, NaN stays NaN
    row.finish(
        load, [&](u32, float &v) { v = fast_exp2(v - top) * inverse; },
        [&](u32 column, u32 valid, float(&pack)[PACK<T>]) {
            store_pack(out + column, valid, aligned(out, 16), pack);
        });
}

HIPVIT_KERNEL(ROW_THREADS) softmax_f32(SoftmaxArgs a) { softmax<float>(a); }
HIPVIT_KERNEL(ROW_THREADS) softmax_f16(SoftmaxArgs a) { softmax<f16>(a); }
HIPVIT_KERNEL(ROW_THREADS) softmax_bf16(SoftmaxArgs a) { softmax<bf16>(a); }
