// interpolate: images in another size.
//
// Shapes: x T [B, H, W, C]; out T [B, h, w, C]. All row-major.
// Alignment: any; vec128 access where C and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a pixel per thread.
#include "interpolate.h"
#include "vec128.hpp"

using namespace hipvit;

HIPVIT_DEVICE float floor_of(float x) {
#if HIPVIT_AMD
    return __builtin_floorf(x);
#else
    return floorf(x);
#endif
}
HIPVIT_DEVICE float ceil_of(float x) { return -floor_of(-x); }

// The elements of an axis that a pixel depends on.
struct Taps {
    float position, stretch;
    float first;
    u32 count;

    HIPVIT_DEVICE Taps(const InterpolateArgs &a, u32 axis, u32 index) {
        const InterpolateAxis &of = a.axes[axis];
        position = (float(index) + of.shift) * of.numerator / of.denominator - of.shift + of.offset;
        stretch = of.stretch;
        count = 1;
        switch (InterpolateKernel(a.kernel)) {
        case InterpolateKernel::NearestPreferFloor: first = ceil_of(position - 0.5f); return;
        case InterpolateKernel::NearestPreferCeil: first = floor_of(position + 0.5f); return;
        case InterpolateKernel::NearestFloor: first = floor_of(position); return;
        case InterpolateKernel::NearestCeil: first = ceil_of(position); return;
        default: break;
        }
        const float reach = (a.kernel == u32(InterpolateKernel::Cubic) ? 2.0f : 1.0f) * stretch;
        first = floor_of(position - reach) + 1.0f;
        count = u32(larger(ceil_of(position + reach) - first, 1.0f));
    }

    HIPVIT_DEVICE float weight(const InterpolateArgs &a, u32 tap) const {
        const float x = absolute((first + float(tap) - position) / stretch), c = a.coefficient;
        if (a.kernel < u32(InterpolateKernel::Linear)) return 1.0f;
        if (a.kernel == u32(InterpolateKernel::Linear)) return larger(1.0f - x, 0.0f);
        if (x <= 1.0f) return ((c + 2.0f) * x - (c + 3.0f)) * x * x + 1.0f;
        return x < 2.0f ? (((x - 5.0f) * x + 8.0f) * x - 4.0f) * c : 0.0f;
    }

    // The element of tap `tap` on an axis of `extent` elements, and whether it has a weight.
    HIPVIT_DEVICE bool at(const InterpolateArgs &a, u32 tap, u32 extent, u32 &element) const {
        const float at = first + float(tap), last = float(extent - 1);
        element = u32(smaller(larger(at, 0.0f), last));
        return !a.exclude_outside || (at >= 0.0f && at <= last);
    }

    HIPVIT_DEVICE float sum(const InterpolateArgs &a, u32 extent) const {
        float sum = 0.0f;
        u32 element;
        for (u32 tap = 0; tap < count; ++tap)
            if (at(a, tap, extent, element)) sum += weight(a, tap);
        return sum == 0.0f ? 1.0f : sum;
    }
};

template <class T> HIPVIT_DEVICE void interpolate(const InterpolateArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    const u64 line = divide(vec.row, a.columns), image = divide(line, a.rows);
    if (image >= a.images) return;
    const Taps down(a, 0, u32(line - image * a.rows)), across(a, 1, u32(vec.row - line * a.columns));
    float total[VEC<T>];
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) total[i] = 0.0f;
    for (u32 i = 0; i < down.count; ++i) {
        u32 y;
        if (!down.at(a, i, a.height, y)) continue;
        const float of_row = down.weight(a, i);
        for (u32 j = 0; j < across.count; ++j) {
            u32 x;
            if (!across.at(a, j, a.width, x)) continue;
            const float weight = of_row * across.weight(a, j);
            const T *from = (const T *)a.x + ((image * a.height + y) * a.width + x) * a.channels + vec.column;
            float value[VEC<T>];
            load_vec(from, vec.valid, aligned(from, 16), value);
#pragma unroll
            for (u32 k = 0; k < VEC<T>; ++k) total[k] = multiply_add(weight, value[k], total[k]);
        }
    }
    if (a.normalize) {
        const float sum = down.sum(a, a.height) * across.sum(a, a.width);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) total[i] /= sum;
    }
    T *to = (T *)a.out + vec.row * a.channels + vec.column;
    store_vec(to, vec.valid, aligned(to, 16), total);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(InterpolateArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, interpolate)
