// window_pool: maximum or mean of sliding windows over images.
//
// Shapes: x T [B, H, W, C]; out T [B, h, w, C]. All row-major.
// Alignment: any; vec128 access where C and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a pixel per thread.
#include "window_pool.h"
#include "windows.hpp"

using namespace hipvit;

// Elements of a window that are in the image, or in the image and its padding.
HIPVIT_DEVICE u32 counted(const WindowPoolArgs &a, u32 axis, u32 index) {
    const WindowGeometry &g = a.windows;
    const bool padded = a.mode == u32(WindowPoolMode::MeanOfPadded);
    const u32 before = g.before[axis], end = before + (axis ? g.width : g.height) + (padded ? a.after[axis] : 0);
    u32 count = 0;
    for (u32 tap = 0; tap < g.kernel[axis]; ++tap) {
        const u32 at = index * g.stride[axis] + tap * g.dilation[axis];
        count += at < end && (padded || at >= before);
    }
    return count;
}

template <class T> HIPVIT_DEVICE void window_pool(const WindowPoolArgs &a) {
    const WindowGeometry &g = a.windows;
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), g.channels);
    const WindowPixel pixel(g, vec.row);
    if (pixel.image >= g.images) return;
    const bool maximum = a.mode == u32(WindowPoolMode::Max);
    float total[VEC<T>];
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) total[i] = maximum ? -infinity() : 0.0f;
    for (u32 down = 0; down < g.kernel[0]; ++down) {
        const u32 y = window_at(g, 0, pixel.row, down);
        if (y == OUTSIDE) continue;
        for (u32 across = 0; across < g.kernel[1]; ++across) {
            const u32 x = window_at(g, 1, pixel.column, across);
            if (x == OUTSIDE) continue;
            const T *from = (const T *)a.x + ((pixel.image * g.height + y) * g.width + x) * g.channels + vec.column;
            float value[VEC<T>];
            load_vec(from, vec.valid, aligned(from, 16), value);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) total[i] = maximum ? larger(total[i], value[i]) : total[i] + value[i];
        }
    }
    if (!maximum) {
        const float count = float(counted(a, 0, pixel.row) * counted(a, 1, pixel.column));
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) total[i] = quotient(total[i], count);
    }
    T *to = (T *)a.out + vec.row * g.channels + vec.column;
    store_vec(to, vec.valid, aligned(to, 16), total);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(WindowPoolArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, window_pool)
