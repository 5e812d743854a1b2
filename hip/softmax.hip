// softmax: softmax(scale · x) over the visible keys, for unfused attention and by itself. Invisible keys become 0, and so does a row without
// visible keys. log_softmax: its logarithm.
//
// Shapes: x, out T [B, H, Nq, Nk], row-major, with any number of keys; out may alias x. Visible keys:
//   include/visibility.h.
// Alignment: any; vec128 access where the addresses allow it.
// Accumulator: f32, after the row's maximum is subtracted.
// Geometry: blocks of ROW_THREADS; a row per wave, or per block (whole_block) for long rows. A thread keeps up to
//   ROW_REGISTERS elements of its row in registers.
#include "softmax.h"
#include "key_range.hpp"
#include "row.hpp"

using namespace hipvit;

template <class T, bool LOG> HIPVIT_DEVICE void softmax(const SoftmaxArgs &a) {
    HIPVIT_LDS static float scratch[ROW_THREADS / WAVE];
    const RowGroup<ROW_THREADS> group{a.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.images * a.heads * a.queries) return; // a whole wave, or a whole block
    const u32 query = index % a.queries, image = index / a.queries / a.heads;
    const T *x = (const T *)a.x + u64(index) * a.keys;
    T *out = (T *)a.out + u64(index) * a.keys;
    const u8 *key_mask = a.visible.key_mask ? a.visible.key_mask + u64(image) * a.keys : nullptr;

    const KeyRange range(a.visible, query, a.keys);
    const float scale_log2 = a.scale * LOG2_E; // e^(scale · x) = 2^(scale_log2 · x)
    auto load = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
        load_vec(x + column, valid, aligned(x, 16), vec);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const bool visible = i < valid && range.contains(column + i) && (!key_mask || key_mask[column + i]);
            vec[i] = visible ? vec[i] * scale_log2 : -infinity();
        }
    };

    Row<T> row(a.keys, group);
    float row_max = -infinity();
    row.fill(load, [&](u32, float v) { row_max = larger(row_max, v); });
    row_max = group.template reduce<Max>(row_max);
    if (row_max == -infinity()) row_max = 0.0f; // no visible key: 2^(−∞ − 0) = 0
    float row_sum = 0.0f;
    row.again(load, [&](u32, float v) { row_sum += fast_exp2(v - row_max); });
    row_sum = group.template reduce<Sum>(row_sum);
    const float inverse = row_sum > 0.0f ? 1.0f / row_sum : row_sum; // 0 stays 0, NaN stays NaN
    const float log_sum = LOG ? fast_log2(row_sum) : 0.0f;
    row.finish(
        load,
        [&](u32, float &v) {
            v = LOG ? LN_2 * (v - row_max - log_sum) : fast_exp2(v - row_max) * inverse;
        },
        [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
            store_vec(out + column, valid, aligned(out, 16), vec);
        });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ROW_THREADS) name##_##T(SoftmaxArgs a) { name<T, false>(a); }                                        \
    HIPVIT_KERNEL(ROW_THREADS) log_##name##_##T(SoftmaxArgs a) { name<T, true>(a); }
HIPVIT_FOR_DTYPES(ENTRY, softmax)
