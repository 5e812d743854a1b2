// pad: out = x with elements before and after each axis: a constant, the nearest element, or the elements mirrored.
//
// Shapes: x elements of 1, 2 or 4 bytes, `from`; out `to`. Both row-major. The dtype of the entry does not matter.
// Alignment: any; 16 bytes per thread where the last axis has no padding and the addresses allow it.
// Geometry: blocks of PAD_THREADS, `width` elements of a row of the result per thread.
#include "pad.h"
#include "vec128.hpp"

using namespace hipvit;

// The index of x for index `at` of an axis of the result. False if it is a constant.
HIPVIT_DEVICE bool source(const PadArgs &a, u32 axis, u32 at, u32 &index) {
    const i64 extent = a.from[axis];
    i64 from = i64(at) - i64(a.before[axis]);
    const bool inside = from >= 0 && from < extent;
    if (!inside) {
        if (a.mode == u32(Padding::Constant)) return false;
        if (a.mode == u32(Padding::Edge)) {
            from = from < 0 ? 0 : extent - 1;
        } else {
            from = from < 0 ? -from : 2 * (extent - 1) - from;
        }
    }
    index = u32(from);
    return true;
}

template <class E> HIPVIT_DEVICE void pad(const PadArgs &a) {
    constexpr u32 LAST = PAD_AXES - 1;
    const u32 length = a.to[LAST], per_row = (length + a.width - 1) / a.width;
    const u64 index = u64(block_index()) * PAD_THREADS + thread_index(), row = divide(index, per_row);
    const u32 column = u32(index - row * per_row) * a.width;
    u64 rest = row, from = 0, size = a.from[LAST];
    bool exists = true;
    for (int axis = int(LAST) - 1; axis >= 0; --axis) {
        const u64 next = divide(rest, a.to[axis]);
        u32 place = 0;
        exists = source(a, u32(axis), u32(rest - next * a.to[axis]), place) && exists;
        from += place * size;
        size *= a.from[axis];
        rest = next;
    }
    if (rest) return; // beyond the last row
    E *out = (E *)a.out + row * length + column;
    const E *x = (const E *)a.x + from;
    const E value = E(a.value);
    if (a.width * sizeof(E) == VEC128_BYTES && aligned(out, VEC128_BYTES) && aligned(x + column, VEC128_BYTES)) {
        union {
            Vec128 whole;
            E element[VEC128_BYTES / sizeof(E)];
        } vec;
#pragma unroll
        for (u32 i = 0; i < VEC128_BYTES / sizeof(E); ++i) vec.element[i] = value;
        if (exists) vec.whole = *reinterpret_cast<const Vec128 *>(x + column);
        *reinterpret_cast<Vec128 *>(out) = vec.whole;
        return;
    }
    const u32 valid = length - column < a.width ? length - column : a.width;
    for (u32 i = 0; i < valid; ++i) {
        u32 place = 0;
        const bool in_row = source(a, LAST, column + i, place);
        out[i] = exists && in_row ? x[place] : value;
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(PAD_THREADS) name##_##T(PadArgs a) {                                                                 \
        if (a.element == 4) {                                                                                          \
            name<u32>(a);                                                                                              \
        } else if (a.element == 2) {                                                                                   \
            name<u16>(a);                                                                                              \
        } else {                                                                                                       \
            name<u8>(a);                                                                                               \
        }                                                                                                              \
    }
HIPVIT_FOR_DTYPES(ENTRY, pad)
