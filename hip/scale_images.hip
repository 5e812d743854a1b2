// scale_images: out = x times the factor of its image.
//
// Shapes: x, out T [images, elements], row-major; out may alias x. factors f32, one every `stride` elements.
// Alignment: any; vec128 access where elements and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of an image per thread.
#include "scale_images.h"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void scale_images(const ScaleImagesArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.elements);
    if (vec.row >= a.images) return;
    const u64 at = vec.row * a.elements + vec.column;
    const float factor = a.factors[vec.row * a.stride];
    const T *x = (const T *)a.x + at;
    float value[VEC<T>];
    load_vec(x, vec.valid, aligned(x, 16), value);
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) value[i] *= factor;
    T *to = (T *)a.out + at;
    store_vec(to, vec.valid, aligned(to, 16), value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(ScaleImagesArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, scale_images)
