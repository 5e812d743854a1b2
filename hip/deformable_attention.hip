// deformable_attention: for each head of a query, the mean of sampled points of several maps, weighted by the softmax of their scores.
//
// Shapes: value T [images, tokens, heads, head_dim]; boxes T [images, queries, 4]; offsets T [images, queries, heads, levels, points, 2];
//   scores T [images, queries, heads, levels, points]; out T [images, queries, heads, head_dim]. All row-major.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32; places and weights are f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a head's channels per thread. The threads of a head repeat its softmax, which is
//   short: RT-DETR has 12 points.
#include "deformable_attention.h"
#include "deformable.hpp"
#include "vec128.hpp"

using namespace hipvit;

template <class T>
HIPVIT_DEVICE void add_pixel(const T *from, u32 valid, float weight, float (&total)[VEC<T>]) {
    float value[VEC<T>];
    load_vec(from, valid, aligned(from, VEC128_BYTES), value);
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) total[i] = multiply_add(weight, value[i], total[i]);
}

template <class T> HIPVIT_DEVICE void deformable_attention(const DeformableAttentionArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.head_dim);
    if (vec.row >= u64(a.images) * a.queries * a.heads) return;
    const u64 query = divide(vec.row, a.heads);
    const u32 head = u32(vec.row - query * a.heads), points = a.levels * a.points;
    const u64 pixel = u64(a.heads) * a.head_dim; // distance of pixels
    const T *boxes = (const T *)a.boxes + query * 4;
    const T *offsets = (const T *)a.offsets + vec.row * points * 2;
    const T *scores = (const T *)a.scores + vec.row * points;
    const T *value = (const T *)a.value + divide(query, a.queries) * a.tokens * pixel + head * a.head_dim + vec.column;
    const float x = to_float(boxes[0]), y = to_float(boxes[1]);
    const float width = to_float(boxes[2]) * a.scale, height = to_float(boxes[3]) * a.scale;

    float most = -infinity(), sum = 0.0f;
    for (u32 i = 0; i < points; ++i) most = larger(most, to_float(scores[i]));
    float total[VEC<T>];
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) total[i] = 0.0f;
    for (u32 level = 0; level < a.levels; ++level) {
        const int rows = int(a.heights[level]), columns = int(a.widths[level]);
        for (u32 point = 0; point < a.points; ++point, ++scores, offsets += 2) {
            const float weight = fast_exp2((to_float(*scores) - most) * LOG2_E);
            sum += weight;
            const AxisTaps across(multiply_add(to_float(offsets[0]), width, x) * float(columns), u32(columns), a.discrete);
            const AxisTaps down(multiply_add(to_float(offsets[1]), height, y) * float(rows), u32(rows), a.discrete);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (i > 0 && a.discrete) break;
                const int row = down.first + i / 2, column = across.first + i % 2;
                if (row < 0 || row >= rows || column < 0 || column >= columns) continue;
                const float share = down.share(i / 2) * across.share(i % 2);
                add_pixel<T>(value + (u64(row) * u32(columns) + u32(column)) * pixel, vec.valid, weight * share, total);
            }
        }
        value += u64(rows) * u32(columns) * pixel;
    }
    const float inverse = 1.0f / sum;
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) total[i] *= inverse;
    T *to = (T *)a.out + vec.row * a.head_dim + vec.column;
    store_vec(to, vec.valid, aligned(to, VEC128_BYTES), total);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(DeformableAttentionArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, deformable_attention)
