// gather: slices of x at indices of an axis.
//
// Shapes: x elements of 1, 2 or 4 bytes [outer, extent, inner]; indices i32 [count]; out [outer, count, inner]. All row-major. The dtype of
//   the entry does not matter.
// Alignment: any; 16 bytes per thread where inner and the addresses allow it.
// Geometry: blocks of GATHER_THREADS, `width` elements of a slice per thread.
#include "gather.h"
#include "vec128.hpp"

using namespace hipvit;

template <class E> HIPVIT_DEVICE void gather(const GatherArgs &a) {
    const u32 per_row = (a.inner + a.width - 1) / a.width;
    const u64 index = u64(block_index()) * GATHER_THREADS + thread_index(), row = divide(index, per_row);
    const u32 column = u32(index - row * per_row) * a.width;
    if (row >= u64(a.outer) * a.count) return;
    const u64 outer = divide(row, a.count);
    i64 at = a.indices[row - outer * a.count];
    if (at < 0) at += a.extent;
    at = at < 0 ? 0 : at < a.extent ? at : i64(a.extent) - 1;
    const E *x = (const E *)a.x + (outer * a.extent + u64(at)) * a.inner + column;
    E *out = (E *)a.out + row * a.inner + column;
    if (a.width * sizeof(E) == VEC128_BYTES && aligned(x, VEC128_BYTES) && aligned(out, VEC128_BYTES)) {
        *reinterpret_cast<Vec128 *>(out) = *reinterpret_cast<const Vec128 *>(x);
        return;
    }
    const u32 valid = a.inner - column < a.width ? a.inner - column : a.width;
    for (u32 i = 0; i < valid; ++i) out[i] = x[i];
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(GATHER_THREADS) name##_##T(GatherArgs a) {                                                           \
        if (a.element == 4) {                                                                                          \
            name<u32>(a);                                                                                              \
        } else if (a.element == 2) {                                                                                   \
            name<u16>(a);                                                                                              \
        } else {                                                                                                       \
            name<u8>(a);                                                                                               \
        }                                                                                                              \
    }
HIPVIT_FOR_DTYPES(ENTRY, gather)
