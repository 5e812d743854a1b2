// Convolutions of images, channels last: conv_patches (the left matrix of a GEMM), depthwise_conv, direct_conv (groups, and transposed),
// conv_transpose_sum.
//
// Shapes: see conv.h. All row-major.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS.
//   conv_patches: a vec128 of a window's element per thread.
//   depthwise_conv: DEPTHWISE_VECS vec128s of channels × runs of DEPTHWISE_COLUMNS adjacent pixels, a run per thread.
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

// Adds the bias, activates, and adds the residual.
template <class T>
HIPVIT_DEVICE void finish(const void *bias, const void *residual, void *out, u64 at, u32 channel, u32 valid, u32 activation,
                          float (&value)[VEC<T>]) {
    float add[VEC<T>];
    if (bias) {
        const T *from = (const T *)bias + channel;
        load_vec(from, valid, aligned(from, 16), add);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += add[i];
    }
    activate_as<T>(activation, value);
    if (residual) {
        const T *from = (const T *)residual + at;
        load_vec(from, valid, aligned(from, 16), add);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += add[i];
    }
    T *to = (T *)out + at;
    store_vec(to, valid, aligned(to, 16), value);
}

template <class T> HIPVIT_DEVICE void depthwise_conv(const DepthwiseConvArgs &a) {
    HIPVIT_LDS static float weights[DEPTHWISE_TAPS][DEPTHWISE_VECS * VEC<T>];
    constexpr u32 CHANNELS = DEPTHWISE_VECS * VEC<T>, RUNS = ELEMENTWISE_THREADS / DEPTHWISE_VECS;
    const WindowGeometry &g = a.windows;
    const u32 taps = g.kernel[0] * g.kernel[1], groups = (g.channels + CHANNELS - 1) / CHANNELS;
    const u32 first = block_index() % groups * CHANNELS;
    for (u32 i = thread_index(); i < taps * CHANNELS; i += ELEMENTWISE_THREADS) {
        const u32 channel = i / taps, tap = i - channel * taps;
        const bool exists = first + channel < g.channels;
        weights[tap][channel] = exists ? to_float(((const T *)a.weight)[u64(first + channel) * taps + tap]) : 0.0f;
    }
    barrier();
    const u32 vec = thread_index() % DEPTHWISE_VECS, channel = first + vec * VEC<T>;
    const u32 runs = (g.columns + DEPTHWISE_COLUMNS - 1) / DEPTHWISE_COLUMNS;
    const u64 run = u64(block_index() / groups) * RUNS + thread_index() / DEPTHWISE_VECS;
    const u64 line = divide(run, runs), image = divide(line, g.rows);
    if (image >= g.images || channel >= g.channels) return;
    const u32 row = u32(line - image * g.rows), column = u32(run - line * runs) * DEPTHWISE_COLUMNS;
    const u32 valid = g.channels - channel < VEC<T> ? g.channels - channel : VEC<T>;
    float sum[DEPTHWISE_COLUMNS][VEC<T>];
#pragma unroll
    for (u32 p = 0; p < DEPTHWISE_COLUMNS; ++p)
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) sum[p][i] = 0.0f;
    for (u32 down = 0; down < g.kernel[0]; ++down) {
        const u32 y = window_at(g, 0, row, down);
        if (y == OUTSIDE) continue;
        const T *from = (const T *)a.x + (image * g.height + y) * g.width * g.channels + channel;
        for (u32 across = 0; across < g.kernel[1]; ++across) {
            const float *weight = weights[down * g.kernel[1] + across] + vec * VEC<T>;
#pragma unroll
            for (u32 p = 0; p < DEPTHWISE_COLUMNS; ++p) {
                const u32 x = window_at(g, 1, column + p, across);
                if (x == OUTSIDE) continue;
                float value[VEC<T>];
                const T *at = from + u64(x) * g.channels;
                load_vec(at, valid, aligned(at, 16), value);
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) sum[p][i] = multiply_add(value[i], weight[i], sum[p][i]);
            }
        }
    }
#pragma unroll
    for (u32 p = 0; p < DEPTHWISE_COLUMNS; ++p) {
        if (column + p >= g.columns) return;
        const u64 at = (line * g.columns + column + p) * g.channels + channel;
        finish<T>(a.bias, a.residual, a.out, at, channel, valid, a.activation, sum[p]);
    }
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
#define DEPTHWISE(name, T)                                                                                             \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(DepthwiseConvArgs a) { name<T>(a); }
#define DIRECT(name, T)                                                                                                \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(DirectConvArgs a) { name<T>(a); }
#define SUM(name, T)                                                                                                   \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(ConvTransposeSumArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(PATCHES, conv_patches)
HIPVIT_FOR_DTYPES(DEPTHWISE, depthwise_conv)
HIPVIT_FOR_DTYPES(DIRECT, direct_conv)
HIPVIT_FOR_DTYPES(SUM, conv_transpose_sum)
