// grid_sample: samples of images at given positions, by the nearest pixel, or by linear or cubic interpolation.
//
// Shapes: x T [images, height, width, channels]; grid f32 or T [images, positions, 2]; out T [images, positions, channels]. All row-major.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32; positions are f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a sample's channels per thread.
#include "grid_sample.h"
#include "vec128.hpp"

using namespace hipvit;

// Pixels along an axis with their weights. −1: a zero outside.
struct Taps {
    int pixel[4];
    float weight[4];
    int count;
};

HIPVIT_DEVICE float floor_of(float x) {
    // Positions are limited to ±2³⁰, so that the conversion is exact.
    const float truncated = float(int(x));
    return truncated > x ? truncated - 1.0f : truncated;
}

HIPVIT_DEVICE int modulo(int x, int y) {
    const int rest = x % y;
    return rest < 0 ? rest + y : rest;
}

HIPVIT_DEVICE int inside(const GridSampleArgs &a, int index, int extent) {
    if (a.border == u32(Border::Edge)) return index < 0 ? 0 : index < extent ? index : extent - 1;
    if (a.border == u32(Border::Reflect)) {
        const int period = a.align_corners ? 2 * (extent - 1) : 2 * extent;
        const int folded = modulo(index, period > 0 ? period : 1);
        const int mirrored = a.align_corners ? period - folded : period - 1 - folded;
        return folded < mirrored ? folded : mirrored < 0 ? 0 : mirrored;
    }
    return index < 0 || index >= extent ? -1 : index;
}

HIPVIT_DEVICE float cubic(float x) {
    constexpr float A = -0.75f;
    return x <= 1.0f ? ((A + 2.0f) * x - (A + 3.0f)) * x * x + 1.0f : A * (((x - 5.0f) * x + 8.0f) * x - 4.0f);
}

HIPVIT_DEVICE Taps taps(const GridSampleArgs &a, float position, int extent) {
    constexpr float FARTHEST = 1.0e9f;
    const float size = float(extent);
    float at = a.align_corners ? (position + 1.0f) * 0.5f * (size - 1.0f) : ((position + 1.0f) * size - 1.0f) * 0.5f;
    at = at != at ? 0.0f : smaller(larger(at, -FARTHEST), FARTHEST); // NaN samples pixel 0
    const float first = floor_of(at), rest = at - first;
    const int pixel = int(first);
    Taps t;
    if (a.sampling == u32(Sampling::Nearest)) {
        const bool up = rest > 0.5f || (rest == 0.5f && pixel % 2 != 0); // ties to even
        t.pixel[0] = inside(a, pixel + (up ? 1 : 0), extent);
        t.weight[0] = 1.0f;
        t.count = 1;
    } else if (a.sampling == u32(Sampling::Linear)) {
        t.pixel[0] = inside(a, pixel, extent);
        t.pixel[1] = inside(a, pixel + 1, extent);
        t.weight[0] = 1.0f - rest;
        t.weight[1] = rest;
        t.count = 2;
    } else {
        for (int i = 0; i < 4; ++i) {
            const float distance = rest - float(i - 1);
            t.pixel[i] = inside(a, pixel + i - 1, extent);
            t.weight[i] = cubic(distance < 0.0f ? -distance : distance);
        }
        t.count = 4;
    }
    return t;
}

template <class T> HIPVIT_DEVICE void grid_sample(const GridSampleArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= u64(a.images) * a.positions) return;
    float position[2];
    for (u32 i = 0; i < 2; ++i) {
        const u64 at = vec.row * 2 + i;
        position[i] = a.narrow_grid ? to_float(((const T *)a.grid)[at]) : ((const float *)a.grid)[at];
    }
    const Taps across = taps(a, position[0], int(a.width)), down = taps(a, position[1], int(a.height));
    const T *x = (const T *)a.x + divide(vec.row, a.positions) * a.height * a.width * a.channels + vec.column;
    float total[VEC<T>];
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) total[i] = 0.0f;
    for (int row = 0; row < down.count; ++row) {
        for (int column = 0; column < across.count; ++column) {
            if (down.pixel[row] < 0 || across.pixel[column] < 0) continue;
            const T *from = x + (u64(down.pixel[row]) * a.width + u32(across.pixel[column])) * a.channels;
            const float weight = down.weight[row] * across.weight[column];
            float value[VEC<T>];
            load_vec(from, vec.valid, aligned(from, VEC128_BYTES), value);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) total[i] = multiply_add(weight, value[i], total[i]);
        }
    }
    T *to = (T *)a.out + vec.row * a.channels + vec.column;
    store_vec(to, vec.valid, aligned(to, VEC128_BYTES), total);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(GridSampleArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, grid_sample)
