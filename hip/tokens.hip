// tokens: puts class and register tokens before an image's tokens, to which it adds the position table.
//
// Shapes: x T [B, N, D]; prefix T [P, D]; position T [N, D] or null; out T [B, P + N, D]: the unchanged prefix, then
//   x + position. All row-major.
// Alignment: any; vec128 access where D and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a token's channels per thread.
#include "tokens.h"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void tokens(const TokensArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    const u32 per_image = a.prefixes + a.tokens;
    if (vec.row >= u64(a.images) * per_image) return;
    const u64 image = divide(vec.row, per_image);
    const u32 token = u32(vec.row - image * per_image);

    float value[VEC<T>];
    if (token < a.prefixes) {
        const T *from = (const T *)a.prefix + u64(token) * a.channels + vec.column;
        load_vec(from, vec.valid, aligned(from, 16), value);
    } else {
        const u64 at = u64(token - a.prefixes) * a.channels + vec.column;
        const T *from = (const T *)a.x + image * a.tokens * a.channels + at;
        load_vec(from, vec.valid, aligned(from, 16), value);
        if (a.position) {
            const T *position = (const T *)a.position + at;
            float add[VEC<T>];
            load_vec(position, vec.valid, aligned(position, 16), add);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) value[i] += add[i];
        }
    }
    T *to = (T *)a.out + vec.row * a.channels + vec.column;
    store_vec(to, vec.valid, aligned(to, 16), value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(TokensArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, tokens)
