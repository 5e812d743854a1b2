// max_pool_backward: the sum of dy over the windows of which an element of x is the largest, the first of equal ones.
//
// Shapes: x, dx T [B, H, W, C]; dy T [B, h, w, C]. All row-major.
// Alignment: any; vec128 access where C and the addresses allow it.
// Accumulator: f32, in the order of the windows.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a pixel of x per thread.
#include "max_pool_backward.h"
#include "windows.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void max_pool_backward(const MaxPoolBackwardArgs &a) {
    const WindowGeometry &g = a.windows;
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), g.channels);
    const u64 line = divide(vec.row, g.width), image = divide(line, g.height);
    if (image >= g.images) return;
    const u32 y = u32(line - image * g.height), x = u32(vec.row - line * g.width);
    const T *pixels = (const T *)a.x + image * g.height * g.width * g.channels + vec.column;
    const T *gradients = (const T *)a.dy + image * g.rows * g.columns * g.channels + vec.column;
    float own[VEC<T>], total[VEC<T>];
    const T *place = pixels + (u64(y) * g.width + x) * g.channels;
    load_vec(place, vec.valid, aligned(place, 16), own);
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) total[i] = 0.0f;
    // The windows that contain the pixel, each by the tap at which it does.
    for (u32 down = g.kernel[0]; down-- > 0;) {
        const u32 row = y + g.before[0] - down * g.dilation[0];
        if (row % g.stride[0] || row / g.stride[0] >= g.rows) continue;
        for (u32 across = g.kernel[1]; across-- > 0;) {
            const u32 column = x + g.before[1] - across * g.dilation[1];
            if (column % g.stride[1] || column / g.stride[1] >= g.columns) continue;
            const u64 window = u64(row / g.stride[0]) * g.columns + column / g.stride[1];
            float dy[VEC<T>];
            const T *from = gradients + window * g.channels;
            load_vec(from, vec.valid, aligned(from, 16), dy);
            for (u32 tap = 0; tap < g.kernel[0] * g.kernel[1]; ++tap) {
                const u32 at_y = window_at(g, 0, row / g.stride[0], tap / g.kernel[1]);
                const u32 at_x = window_at(g, 1, column / g.stride[1], tap % g.kernel[1]);
                if (at_y == OUTSIDE || at_x == OUTSIDE) continue;
                const bool before = tap < down * g.kernel[1] + across;
                float other[VEC<T>];
                const T *at = pixels + (u64(at_y) * g.width + at_x) * g.channels;
                load_vec(at, vec.valid, aligned(at, 16), other);
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i)
                    if (before ? other[i] >= own[i] : other[i] > own[i]) dy[i] = 0.0f;
            }
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) total[i] += dy[i];
        }
    }
    T *to = (T *)a.dx + vec.row * g.channels + vec.column;
    store_vec(to, vec.valid, aligned(to, 16), total);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(MaxPoolBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, max_pool_backward)
