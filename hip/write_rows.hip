// write_rows: the elements of each image replace those at its slot.
//
// Shapes: x, out T [places, each]; rows T [images, stride], of which the last `each` columns are written; slots i32 [images]. All row-major.
// Alignment: any; 16 bytes per thread where the extents and the addresses allow it.
// Geometry: blocks of WRITE_ROWS_THREADS, a vec128 of an image per thread. If x is copied, a vec128 of a place per thread, which looks for the
//   image of its place, so that the result does not depend on the order of threads.
#include "write_rows.h"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void write_rows(const WriteRowsArgs &a) {
    const MatrixVec<T> at(u64(block_index()) * WRITE_ROWS_THREADS + thread_index(), a.each);
    const T *from, *rows = (const T *)a.rows + (a.stride - a.each);
    u64 to;
    if (a.copies) {
        if (at.row >= a.places) return;
        to = at.row;
        from = (const T *)a.x + to * a.each;
        for (u32 image = 0; image < a.images; ++image)
            if (a.slots[image] >= 0 && u64(a.slots[image]) == to) from = rows + u64(image) * a.stride;
    } else {
        if (at.row >= a.images) return;
        const int slot = a.slots[at.row];
        if (slot < 0 || u32(slot) >= a.places) return;
        to = u64(slot);
        from = rows + at.row * a.stride;
    }
    from += at.column;
    T *out = (T *)a.out + to * a.each + at.column;
    if (at.valid == VEC<T> && aligned(from, VEC128_BYTES) && aligned(out, VEC128_BYTES)) {
        *reinterpret_cast<Vec128 *>(out) = *reinterpret_cast<const Vec128 *>(from);
        return;
    }
    for (u32 i = 0; i < at.valid; ++i) out[i] = from[i];
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(WRITE_ROWS_THREADS) name##_##T(WriteRowsArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, write_rows)
