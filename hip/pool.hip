// pool: from tokens to one vector an image: one token, or the mean or maximum of all tokens but some first.
//
// x T [B,N,D] → T [B,D]; first < N.
// Alignment: any; packs of 16 bytes where D and the addresses allow it. Accumulator: f32.
// Geometry: blocks of 256 = 32 packs of channels × 8 slices of the tokens, which meet in LDS; the grid is images ×
//   groups of 32 packs.
#include "pool.h"
#include "pack.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void pool(const PoolArgs &a) {
    HIPVIT_LDS static float partial[POOL_SLICES][POOL_VECS][PACK<T>];
    const u32 packs = (a.channels + PACK<T> - 1) / PACK<T>, groups = (packs + POOL_VECS - 1) / POOL_VECS;
    const u64 image = block_index() / groups;
    const u32 pack = thread_index() % POOL_VECS, slice = thread_index() / POOL_VECS;
    const u32 column = (block_index() % groups * POOL_VECS + pack) * PACK<T>;
    const u32 valid = column >= a.channels ? 0 : a.channels - column < PACK<T> ? a.channels - column : PACK<T>;
    const T *x = (const T *)a.x + image * a.tokens * a.channels + column;
    const bool maximum = a.mode == u32(PoolMode::Max);
    const u32 end = a.mode == u32(PoolMode::Token) ? a.first + 1 : a.tokens;

    float total[PACK<T>];
#pragma unroll
    for (u32 i = 0; i < PACK<T>; ++i) total[i] = maximum ? -infinity() : 0.0f;
    if (valid) {
        for (u32 token = a.first + slice; token < end; token += POOL_SLICES) {
            const T *from = x + u64(token) * a.channels;
            float value[PACK<T>];
            load_pack(from, valid, aligned(from, 16), value);
#pragma unroll
            for (u32 i = 0; i < PACK<T>; ++i) total[i] = maximum ? larger(total[i], value[i]) : total[i] + value[i];
        }
    }
#pragma unroll
    for (u32 i = 0; i < PACK<T>; ++i) partial[slice][pack][i] = total[i];
    barrier();
    if (slice != 0 || !valid) return;
    for (u32 s = 1; s < POOL_SLICES; ++s) {
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) {
            float other = partial[s][pack][i];
            total[i] = maximum ? larger(total[i], other) : total[i] + other;
        }
    }
    if (a.mode == u32(PoolMode::Mean)) {
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) total[i] /= float(a.tokens - a.first);
    }
    T *to = (T *)a.out + image * a.channels + column;
    store_pack(to, valid, aligned(to, 16), total);
}

HIPVIT_KERNEL(POOL_VECS * POOL_SLICES) pool_f32(PoolArgs a) { pool<float>(a); }
HIPVIT_KERNEL(POOL_VECS * POOL_SLICES) pool_f16(PoolArgs a) { pool<f16>(a); }
HIPVIT_KERNEL(POOL_VECS * POOL_SLICES) pool_bf16(PoolArgs a) { pool<bf16>(a); }
