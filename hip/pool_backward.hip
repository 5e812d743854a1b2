// pool_backward: the gradient of an image's tokens from that of the pooled vector. The pooled token gets dy, or each of the tokens from
// `first` on gets an equal share of it, or the first of their maxima gets it. The other tokens get 0.
//
// Shapes: x T [B, N, D], only read for a maximum; dy T [B, D]; dx T [B, N, D]. All row-major; first < N.
// Alignment: any; vec128 access where D and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of POOL_VECS vec128s of channels × POOL_SLICES slices of the tokens. The slices' maxima are combined through LDS.
//   Grid: images × groups of POOL_VECS vec128s.
#include "pool_backward.h"
#include "vec128.hpp"

using namespace hipvit;

// The largest element of each channel among some tokens, and the first token that has it.
template <class T> struct FirstMaximum {
    float value[VEC<T>];
    u32 token[VEC<T>];

    // Takes the elements of other tokens.
    HIPVIT_DEVICE void combine(u32 i, float other, u32 of) {
        const bool wins = other > value[i] || (other == value[i] && of < token[i]);
        value[i] = wins ? other : value[i];
        token[i] = wins ? of : token[i];
    }
};

template <class T> HIPVIT_DEVICE void pool_backward(const PoolBackwardArgs &a) {
    HIPVIT_LDS static float maxima[POOL_SLICES][POOL_VECS][VEC<T>];
    HIPVIT_LDS static u32 places[POOL_SLICES][POOL_VECS][VEC<T>];
    const u32 vecs = (a.channels + VEC<T> - 1) / VEC<T>, groups = (vecs + POOL_VECS - 1) / POOL_VECS;
    const u64 image = block_index() / groups;
    const u32 vec = thread_index() % POOL_VECS, slice = thread_index() / POOL_VECS;
    const u32 column = (block_index() % groups * POOL_VECS + vec) * VEC<T>;
    const u32 valid = column >= a.channels ? 0 : a.channels - column < VEC<T> ? a.channels - column : VEC<T>;
    const u64 start = image * a.tokens * a.channels + column;
    const bool maximum = a.mode == u32(PoolMode::Max);

    FirstMaximum<T> best;
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) {
        best.value[i] = -infinity();
        best.token[i] = a.first;
    }
    if (maximum) {
        for (u32 token = a.first + slice; valid && token < a.tokens; token += POOL_SLICES) {
            const T *from = (const T *)a.x + start + u64(token) * a.channels;
            float value[VEC<T>];
            load_vec(from, valid, aligned(from, VEC128_BYTES), value);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) best.combine(i, value[i], token);
        }
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            maxima[slice][vec][i] = best.value[i];
            places[slice][vec][i] = best.token[i];
        }
        barrier();
        for (u32 s = 0; s < POOL_SLICES; ++s) {
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) best.combine(i, maxima[s][vec][i], places[s][vec][i]);
        }
    }
    if (!valid) return;

    const T *from = (const T *)a.dy + image * a.channels + column;
    float gradient[VEC<T>];
    load_vec(from, valid, aligned(from, VEC128_BYTES), gradient);
    if (a.mode == u32(PoolMode::Mean)) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) gradient[i] /= float(a.tokens - a.first);
    }
    for (u32 token = slice; token < a.tokens; token += POOL_SLICES) {
        float value[VEC<T>];
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const bool pooled = a.mode == u32(PoolMode::Mean) ? token >= a.first : token == best.token[i];
            value[i] = pooled ? gradient[i] : 0.0f;
        }
        T *to = (T *)a.dx + start + u64(token) * a.channels;
        store_vec(to, valid, aligned(to, VEC128_BYTES), value);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(POOL_VECS * POOL_SLICES) name##_##T(PoolBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, pool_backward)
