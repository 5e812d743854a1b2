// deformable_attention_backward: gradients of values, boxes, offsets and scores of deformable_attention. Deterministic: every result is
// written by one thread, which sums in a fixed order.
//
// Shapes: as in deformable_attention.h; each gradient has the shape of its operand. All row-major.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32; places and weights are f32.
// Geometry: blocks of ELEMENTWISE_THREADS. The first images · queries blocks take a query each: a wave takes heads, a lane points. In the
//   others, a thread takes a vec128 of a head's channels of a pixel, and looks for the pixel among the points of all queries.
#include "deformable_attention_backward.h"
#include "deformable.hpp"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

constexpr u32 WAVES = ELEMENTWISE_THREADS / WAVE;

// The points of a query's head.
template <class T> struct Head {
    const T *offsets, *scores;
    float x, y, width, height, most, inverse;

    HIPVIT_DEVICE Head(const DeformableAttentionBackwardArgs &a, u64 query, u32 head) {
        const u32 points = a.levels * a.points;
        const u64 first = (query * a.heads + head) * points;
        const T *boxes = (const T *)a.boxes + query * 4;
        offsets = (const T *)a.offsets + first * 2;
        scores = (const T *)a.scores + first;
        x = to_float(boxes[0]), y = to_float(boxes[1]);
        width = to_float(boxes[2]) * a.scale, height = to_float(boxes[3]) * a.scale;
        most = -infinity();
    }
    HIPVIT_DEVICE void sum_weights(u32 points) {
        float sum = 0.0f;
        for (u32 i = 0; i < points; ++i) most = larger(most, to_float(scores[i]));
        for (u32 i = 0; i < points; ++i) sum += fast_exp2((to_float(scores[i]) - most) * LOG2_E);
        inverse = 1.0f / sum;
    }
    HIPVIT_DEVICE float weight(u32 point) const {
        return fast_exp2((to_float(scores[point]) - most) * LOG2_E) * inverse;
    }
    HIPVIT_DEVICE AxisTaps across(u32 point, u32 columns, bool discrete) const {
        return AxisTaps(multiply_add(to_float(offsets[2 * point]), width, x) * float(columns), columns, discrete);
    }
    HIPVIT_DEVICE AxisTaps down(u32 point, u32 rows, bool discrete) const {
        return AxisTaps(multiply_add(to_float(offsets[2 * point + 1]), height, y) * float(rows), rows, discrete);
    }
};

template <class T> HIPVIT_DEVICE float dot(const T *x, const T *y, u32 len) {
    float sum = 0.0f;
    for (u32 i = 0; i < len; i += VEC<T>) {
        float a[VEC<T>], b[VEC<T>];
        load_vec(x + i, len - i, aligned(x + i, VEC128_BYTES), a);
        load_vec(y + i, len - i, aligned(y + i, VEC128_BYTES), b);
#pragma unroll
        for (u32 j = 0; j < VEC<T>; ++j) sum = multiply_add(a[j], b[j], sum);
    }
    return sum;
}

// Boxes, offsets and scores of a query.
template <class T> HIPVIT_DEVICE void of_query(const DeformableAttentionBackwardArgs &a, u64 query) {
    HIPVIT_LDS static float products[WAVES][DEFORMABLE_BACKWARD_POINTS];
    HIPVIT_LDS static float scratch[WAVES];
    const RowGroup<ELEMENTWISE_THREADS> group{true, scratch};
    const u32 points = a.levels * a.points, lane = u32(lane_index()), wave = u32(wave_index());
    const u64 pixel = u64(a.heads) * a.head_dim; // distance of pixels
    const T *image = (const T *)a.value + divide(query, a.queries) * a.tokens * pixel;
    float of_box[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (u32 index = wave; index < a.heads; index += WAVES) {
        Head<T> head(a, query, index);
        head.sum_weights(points);
        const T *dy = (const T *)a.dy + query * pixel + u64(index) * a.head_dim;
        const u64 first = (query * a.heads + index) * points;
        float mean = 0.0f;
        for (u32 point = lane; point < points; point += WAVE) {
            const u32 level = point / a.points, rows = a.heights[level], columns = a.widths[level];
            const T *value = image + u64(index) * a.head_dim;
            for (u32 i = 0; i < level; ++i) value += u64(a.heights[i]) * a.widths[i] * pixel;
            const AxisTaps across = head.across(point, columns, a.discrete), down = head.down(point, rows, a.discrete);
            float sample = 0.0f, slope_x = 0.0f, slope_y = 0.0f;
            for (int i = 0; i < (a.discrete ? 1 : 4); ++i) {
                const int row = down.first + i / 2, column = across.first + i % 2;
                if (row < 0 || row >= int(rows) || column < 0 || column >= int(columns)) continue;
                const float of_row = down.share(i / 2), of_column = across.share(i % 2);
                const float found = dot(value + (u64(row) * columns + u32(column)) * pixel, dy, a.head_dim);
                sample = multiply_add(of_row * of_column, found, sample);
                slope_x += (i % 2 ? of_row : -of_row) * found;
                slope_y += (i / 2 ? of_column : -of_column) * found;
            }
            const float weight = head.weight(point);
            products[wave][point] = sample;
            mean = multiply_add(weight, sample, mean);
            slope_x *= a.discrete ? 0.0f : weight * float(columns);
            slope_y *= a.discrete ? 0.0f : weight * float(rows);
            T *doffsets = (T *)a.doffsets + (first + point) * 2;
            doffsets[0] = from_float<T>(slope_x * head.width);
            doffsets[1] = from_float<T>(slope_y * head.height);
            of_box[0] += slope_x;
            of_box[1] += slope_y;
            of_box[2] = multiply_add(slope_x * a.scale, to_float(head.offsets[2 * point]), of_box[2]);
            of_box[3] = multiply_add(slope_y * a.scale, to_float(head.offsets[2 * point + 1]), of_box[3]);
        }
        mean = reduce_wave<Sum>(mean);
        T *dscores = (T *)a.dscores + first;
        // A lane reads the products that it wrote.
        for (u32 point = lane; point < points; point += WAVE)
            dscores[point] = from_float<T>(head.weight(point) * (products[wave][point] - mean));
    }
    for (u32 i = 0; i < 4; ++i) {
        const float sum = group.template reduce<Sum>(of_box[i]);
        if (thread_index() == 0) ((T *)a.dboxes)[query * 4 + i] = from_float<T>(sum);
    }
}

// A vec128 of a head's channels of a pixel.
template <class T> HIPVIT_DEVICE void of_pixel(const DeformableAttentionBackwardArgs &a, u64 index) {
    const MatrixVec<T> vec(index, a.head_dim);
    if (vec.row >= u64(a.images) * a.tokens * a.heads) return;
    const u64 token = divide(vec.row, a.heads), image = divide(token, a.tokens);
    const u32 head = u32(vec.row - token * a.heads), points = a.levels * a.points;
    u32 place = u32(token - image * a.tokens), level = 0;
    while (place >= a.heights[level] * a.widths[level]) {
        place -= a.heights[level] * a.widths[level];
        ++level;
    }
    const u32 rows = a.heights[level], columns = a.widths[level];
    const int row = int(place / columns), column = int(place % columns);
    float total[VEC<T>];
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) total[i] = 0.0f;
    for (u64 query = image * a.queries; query < (image + 1) * a.queries; ++query) {
        Head<T> points_of(a, query, head);
        float share = 0.0f;
        bool found = false;
        for (u32 point = level * a.points; point < (level + 1) * a.points; ++point) {
            const float of_column = points_of.across(point, columns, a.discrete).weight(column);
            if (of_column == 0.0f) continue;
            const float of_row = points_of.down(point, rows, a.discrete).weight(row);
            if (of_row == 0.0f) continue;
            if (!found) points_of.sum_weights(points);
            found = true;
            share = multiply_add(points_of.weight(point), of_row * of_column, share);
        }
        if (!found) continue;
        float dy[VEC<T>];
        const T *from = (const T *)a.dy + (query * a.heads + head) * a.head_dim + vec.column;
        load_vec(from, vec.valid, aligned(from, VEC128_BYTES), dy);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) total[i] = multiply_add(share, dy[i], total[i]);
    }
    T *to = (T *)a.dvalue + vec.row * a.head_dim + vec.column;
    store_vec(to, vec.valid, aligned(to, VEC128_BYTES), total);
}

template <class T> HIPVIT_DEVICE void deformable_attention_backward(const DeformableAttentionBackwardArgs &a) {
    const u64 queries = u64(a.images) * a.queries;
    if (block_index() < queries)
        of_query<T>(a, block_index());
    else
        of_pixel<T>(a, (block_index() - queries) * ELEMENTWISE_THREADS + thread_index());
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(DeformableAttentionBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, deformable_attention_backward)
