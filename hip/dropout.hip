// dropout: out = x times a factor, or 0 where a random number is below a threshold.
//
// Shapes: x, out T [images, elements], row-major; out may alias x. keys f32 [images, 2].
// Random numbers: Philox 4x32-10 with the bits of the image's keys and the counter (element / 4, 0, site, 0).
// Alignment: any; vec128 access where elements and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of an image per thread.
#include "dropout.h"
#include "philox.hpp"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void dropout(const DropoutArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.elements);
    if (vec.row >= a.images) return;
    const u64 at = vec.row * a.elements + vec.column;
    const u32 key0 = bits_of(a.keys[2 * vec.row]), key1 = bits_of(a.keys[2 * vec.row + 1]);
    const T *x = (const T *)a.x + at;
    float value[VEC<T>];
    load_vec(x, vec.valid, aligned(x, 16), value);
#pragma unroll
    for (u32 group = 0; group < VEC<T> / 4; ++group) {
        const Random4 random = philox4x32_10(vec.column / 4 + group, a.site, key0, key1);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            float &of = value[4 * group + i];
            of = random.word[i] < a.threshold ? 0.0f : of * a.factor;
        }
    }
    T *to = (T *)a.out + at;
    store_vec(to, vec.valid, aligned(to, 16), value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(DropoutArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, dropout)
