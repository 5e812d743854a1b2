// pool: reduces an image's tokens to one vector: one of them, or the mean or maximum of those from `first` on.
//
// Shapes: x T [B, N, D], first < N; out T [B, D]. All row-major.
// Alignment: any; vec128 access where D and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of POOL_VECS vec128s of channels × POOL_SLICES slices of the tokens, which are combined through LDS.
//   Grid: images × groups of POOL_VECS vec128s.
#include "pool.h"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void pool(const PoolArgs &a) {
    HIPVIT_LDS static float partial[POOL_SLICES][POOL_VECS][VEC<T>];
    const u32 vecs = (a.channels + VEC<T> - 1) / VEC<T>, groups = (vecs + POOL_VECS - 1) / POOL_VECS;
    const u64 image = block_index() / groups;
    const u32 vec = thread_index() % POOL_VECS, slice = thread_index() / POOL_VECS;
    const u32 column = (block_index() % groups * POOL_VECS + vec) * VEC<T>;
    const u32 valid = column >= a.channels ? 0 : a.channels - column < VEC<T> ? a.channels - column : VEC<T>;
    const T *x = (const T *)a.x + image * a.tokens * a.channels + column;
    const bool maximum = a.mode == u32(PoolMode::Max);
    const u32 end = a.mode == u32(PoolMode::Token) ? a.first + 1 : a.tokens;

    float total[VEC<T>];
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) total[i] = maximum ? -infinity() : 0.0f;
    if (valid) {
        for (u32 token = a.first + slice; token < end; token += POOL_SLICES) {
            const T *from = x + u64(token) * a.channels;
            float value[VEC<T>];
            load_vec(from, valid, aligned(from, 16), value);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) total[i] = maximum ? larger(total[i], value[i]) : total[i] + value[i];
        }
    }
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) partial[slice][vec][i] = total[i];
    barrier();
    if (slice != 0 || !valid) return;
    for (u32 s = 1; s < POOL_SLICES; ++s) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            float other = partial[s][vec][i];
            total[i] = maximum ? larger(total[i], other) : total[i] + other;
        }
    }
    if (a.mode == u32(PoolMode::Mean)) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) total[i] /= float(a.tokens - a.first);
    }
    T *to = (T *)a.out + image * a.channels + column;
    store_vec(to, valid, aligned(to, 16), total);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(POOL_VECS * POOL_SLICES) name##_##T(PoolArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, pool)
