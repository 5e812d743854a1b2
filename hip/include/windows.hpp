// Positions of sliding windows (windows.h).
#pragma once
#include "vec128.hpp"
#include "windows.h"

namespace hipvit {

constexpr u32 OUTSIDE = 0xffffffff;

// The position of element `tap` of window `index` on an axis; OUTSIDE in the padding.
HIPVIT_DEVICE u32 window_at(const WindowGeometry &g, u32 axis, u32 index, u32 tap) {
    const u32 at = index * g.stride[axis] + tap * g.dilation[axis] - g.before[axis];
    return at < (axis ? g.width : g.height) ? at : OUTSIDE;
}

// The position that a transposed convolution multiplies by element `tap` of the kernel for element `index` of the result.
HIPVIT_DEVICE u32 transposed_at(const WindowGeometry &g, u32 axis, u32 index, u32 tap) {
    const u32 sum = index + g.before[axis], offset = tap * g.dilation[axis];
    const u32 at = (sum - offset) / g.stride[axis];
    const bool hit = sum >= offset && at * g.stride[axis] == sum - offset && at < (axis ? g.width : g.height);
    return hit ? at : OUTSIDE;
}

// A pixel of the result.
struct WindowPixel {
    u64 image;
    u32 row, column;

    HIPVIT_DEVICE WindowPixel(const WindowGeometry &g, u64 pixel) {
        const u64 line = divide(pixel, g.columns);
        column = u32(pixel - line * g.columns);
        image = divide(line, g.rows);
        row = u32(line - image * g.rows);
    }
};

} // namespace hipvit
