// Convolutions of images, channels last: conv_patches (the left matrix of a GEMM), direct_conv (groups, and transposed),
// conv_transpose_sum. See also depthwise_conv.hip.
//
// Shapes: see conv.h. All row-major.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS.
//   conv_patches: a vec128 of a window's element per thread.
//   direct_conv, conv_transpose_sum: an element of the result per thread.
#include "conv.h"
#include "activation.hpp"
#include "windows.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void conv_patches(const ConvPatchesArgs &a) {
    const WindowGeometry &g = a.windows;
    const u32 depth = g.channels / a.groups, vecs = (depth + VEC<T> - 1) / VEC<T>;
    const u32 taps = g.kernel[0] * g.kernel[1];
    const u64 pixels = u64(g.images) * g.rows * g.columns;
    u64 index = u64(block_index()) * ELEMENTWISE_THREADS + thread_index();
    const u64 element = divide(index, vecs);
    const u32 column = u32(index - element * vecs) * VEC<T>;
    const u64 row = divide(element, taps);
    const u32 tap = u32(element - row * taps);
    if (row >= pixels * a.groups) return;
    const u32 group = pixels >> 32 ? u32(row / pixels) : u32(divide(row, u32(pixels)));
    const WindowPixel pixel(g, row - group * pixels);
    const u32 y = window_at(g, 0, pixel.row, tap / g.kernel[1]), x = window_at(g, 1, pixel.column, tap % g.kernel[1]);
    const u32 valid = depth - column < VEC<T> ? depth - column : VEC<T>;
    float value[VEC<T>];
    if (y != OUTSIDE && x != OUTSIDE) {
        const u64 at = ((pixel.image * g.height + y) * g.width + x) * g.channels + group * depth + column;
        const T *from = (const T *)a.x + at;
        load_vec(from, valid, aligned(from, 16), value);
    } else {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] = 0.0f;
    }
    T *to = (T *)a.out + element * depth + column;
    store_vec(to, valid, aligned(to, 16), value);
}

template <class T> HIPVIT_DEVICE void direct_conv(const DirectConvArgs &a) {
    const WindowGeometry &g = a.windows;
    const u64 index = u64(block_index()) * ELEMENTWISE_THREADS + thread_index();
    const u64 at = divide(index, a.features);
    const u32 feature = u32(index - at * a.features);
    const WindowPixel pixel(g, at);
    if (pixel.image >= g.images) return;
    const u32 depth = g.channels / a.groups, group = feature / (a.features / a.groups);
    const T *image = (const T *)a.x + pixel.image * g.height * g.width * g.channels + group * depth;
    const T *weight = (const T *)a.weight + u64(feature) * g.kernel[0] * g.kernel[1] * depth;
    float sum = 0.0f;
    for (u32 down = 0; down < g.kernel[0]; ++down) {
        const u32 y = a.transposed ? transposed_at(g, 0, pixel.row, down) : window_at(g, 0, pixel.row, down);
        for (u32 across = 0; across < g.kernel[1]; ++across, weight += depth) {
            const u32 x = a.transposed ? transposed_at(g, 1, pixel.column, across) : window_at(g, 1, pixel.column, across);
            if (y == OUTSIDE || x == OUTSIDE) continue;
            const T *from = image + (u64(y) * g.width + x) * g.channels;
            for (u32 c = 0; c < depth; ++c) sum = multiply_add(to_float(from[c]), to_float(weight[c]), sum);
        }
    }
    if (a.bias) sum += to_float(((const T *)a.bias)[feature]);
    float value[1] = {sum};
    activate_as<T>(a.activation, value);
    if (a.residual) value[0] += to_float(((const T *)a.residual)[index]);
    ((T *)a.out)[index] = from_float<T>(value[0]);
}

template <class T> HIPVIT_DEVICE void conv_transpose_sum(const ConvTransposeSumArgs &a) {
    const WindowGeometry &g = a.windows;
    const u64 index = u64(block_index()) * ELEMENTWISE_THREADS + thread_index();
    const u64 at = divide(index, g.channels);
    const u32 feature = u32(index - at * g.channels), taps = g.kernel[0] * g.kernel[1];
    const WindowPixel pixel(g, at);
    if (pixel.image >= g.images) return;
    float sum = a.bias ? to_float(((const T *)a.bias)[feature]) : 0.0f;
    for (u32 down = 0; down < g.kernel[0]; ++down) {
        const u32 y = transposed_at(g, 0, pixel.row, down);
        if (y == OUTSIDE) continue;
        for (u32 across = 0; across < g.kernel[1]; ++across) {
            const u32 x = transposed_at(g, 1, pixel.column, across);
            if (x == OUTSIDE) continue;
            const u64 of_pixel = ((pixel.image * g.height + y) * g.width + x) * g.channels + feature;
            sum += to_float(((const T *)a.products)[of_pixel * taps + down * g.kernel[1] + across]);
        }
    }
    ((T *)a.out)[index] = from_float<T>(sum);
}

#define PATCHES(name, T)                                                                                               \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(ConvPatchesArgs a) { name<T>(a); }
#define DIRECT(name, T)                                                                                                \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(DirectConvArgs a) { name<T>(a); }
#define SUM(name, T)                                                                                                   \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(ConvTransposeSumArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(PATCHES, conv_patches)
HIPVIT_FOR_DTYPES(DIRECT, direct_conv)
HIPVIT_FOR_DTYPES(SUM, conv_transpose_sum)
