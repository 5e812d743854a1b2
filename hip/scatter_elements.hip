// scatter_elements: x with updates at indices of their own along an axis.
//
// Shapes: x, out T, f32 or i32 `from`; indices i32 `extents`; updates as x, `extents`. All row-major.
// Alignment: any.
// Accumulator: f32, or i32 for integers.
// Geometry: blocks of SCATTER_ELEMENTS_THREADS, an element of out each. A thread looks for its index among those of its row of the axis and
//   applies the updates in order, so that the result does not depend on the order of threads.
#include "scatter_elements.h"
#include "vec128.hpp"

using namespace hipvit;

template <class V> HIPVIT_DEVICE V combined(u32 reduction, V value, V update) {
    switch (reduction) {
    case 1: return value + update;
    case 2: return value * update;
    case 3: return value < update ? update : value;
    case 4: return update < value ? update : value;
    default: return update;
    }
}

template <class E, class V, class Read, class Write>
HIPVIT_DEVICE void scatter(const ScatterElementsArgs &a, const Read &read, const Write &write) {
    const u64 index = u64(block_index()) * SCATTER_ELEMENTS_THREADS + thread_index();
    u64 rest = index, first = 0, size = 1, distance = 0;
    u32 own = 0;
    bool inside = true;
    for (int axis = int(SCATTER_AXES) - 1; axis >= 0; --axis) {
        const u64 next = divide(rest, a.from[axis]);
        const u32 at = u32(rest - next * a.from[axis]);
        if (u32(axis) == a.axis) {
            own = at;
            distance = size;
        } else {
            inside = inside && at < a.extents[axis];
            first += at * size;
        }
        size *= a.extents[axis];
        rest = next;
    }
    if (rest) return; // beyond the last element
    V value = read(((const E *)a.x)[index]);
    const i64 extent = a.from[a.axis];
    const u32 updates = inside ? a.extents[a.axis] : 0;
    for (u32 update = 0; update < updates; ++update) {
        const u64 place = first + update * distance;
        i64 at = a.indices[place];
        if (at < 0) at += extent;
        at = at < 0 ? 0 : at < extent ? at : extent - 1;
        if (at == own) value = combined(a.reduction, value, V(read(((const E *)a.updates)[place])));
    }
    ((E *)a.out)[index] = write(value);
}

template <class T> HIPVIT_DEVICE void scatter_elements(const ScatterElementsArgs &a) {
    if (a.kind == 2) {
        scatter<int, int>(a, [](int x) { return x; }, [](int x) { return x; });
    } else if (a.kind == 1) {
        scatter<float, float>(a, [](float x) { return x; }, [](float x) { return x; });
    } else {
        scatter<T, float>(a, [](T x) { return to_float(x); }, [](float x) { return from_float<T>(x); });
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(SCATTER_ELEMENTS_THREADS) name##_##T(ScatterElementsArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, scatter_elements)
