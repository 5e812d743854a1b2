// gather_elements: elements of x by indices of their own along an axis.
//
// Shapes: x elements of 1, 2 or 4 bytes, `from`; indices i32 `extents`; out `extents`. All row-major. The dtype of the entry does not matter.
// Alignment: any.
// Geometry: blocks of GATHER_ELEMENTS_THREADS, an element each.
#include "gather_elements.h"
#include "vec128.hpp"

using namespace hipvit;

template <class E> HIPVIT_DEVICE void gather_elements(const GatherElementsArgs &a) {
    const u64 index = u64(block_index()) * GATHER_ELEMENTS_THREADS + thread_index();
    u64 rest = index, from = 0, size = 1, axis_size = 0;
    for (int axis = int(GATHER_AXES) - 1; axis >= 0; --axis) {
        const u64 next = divide(rest, a.extents[axis]);
        if (u32(axis) == a.axis) {
            axis_size = size;
        } else {
            from += (rest - next * a.extents[axis]) * size;
        }
        size *= a.from[axis];
        rest = next;
    }
    if (rest) return; // beyond the last element
    const i64 extent = a.from[a.axis];
    i64 at = a.indices[index];
    if (at < 0) at += extent;
    at = at < 0 ? 0 : at < extent ? at : extent - 1;
    ((E *)a.out)[index] = ((const E *)a.x)[from + u64(at) * axis_size];
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(GATHER_ELEMENTS_THREADS) name##_##T(GatherElementsArgs a) {                                          \
        if (a.element == 4) {                                                                                          \
            name<u32>(a);                                                                                              \
        } else if (a.element == 2) {                                                                                   \
            name<u16>(a);                                                                                              \
        } else {                                                                                                       \
            name<u8>(a);                                                                                               \
        }                                                                                                              \
    }
HIPVIT_FOR_DTYPES(ENTRY, gather_elements)
