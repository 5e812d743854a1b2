// tokens: class, register and position tokens.
//
// x T [B,N,D], prefix T [P,D], position T [N,D] → T [B,P+N,D]: the prefix as it is, then x + position.
// Alignment: any; packs of 16 bytes where D and the addresses allow it. The sum is in f32.
// Geometry: blocks of 256; a thread takes a pack of one token's channels.
#include "tokens.h"
#include "pack.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void tokens(const TokensArgs &a) {
    const MatrixPack<T> pack(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    const u32 per_image = a.prefixes + a.tokens;
    if (pack.row >= u64(a.images) * per_image) return;
    const u64 image = pack.row / per_image;
    const u32 token = u32(pack.row % per_image);

    float value[PACK<T>];
    if (token < a.prefixes) {
        const T *from = (const T *)a.prefix + u64(token) * a.channels + pack.column;
        load_pack(from, pack.valid, aligned(from, 16), value);
    } else {
        const u64 at = u64(token - a.prefixes) * a.channels + pack.column;
        const T *from = (const T *)a.x + image * a.tokens * a.channels + at;
        load_pack(from, pack.valid, aligned(from, 16), value);
        if (a.position) {
            const T *position = (const T *)a.position + at;
            float add[PACK<T>];
            load_pack(position, pack.valid, aligned(position, 16), add);
#pragma unroll
            for (u32 i = 0; i < PACK<T>; ++i) value[i] += add[i];
        }
    }
    T *to = (T *)a.out + pack.row * a.channels + pack.column;
    store_pack(to, pack.valid, aligned(to, 16), value);
}

HIPVIT_KERNEL(ELEMENTWISE_THREADS) tokens_f32(TokensArgs a) { tokens<float>(a); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) tokens_f16(TokensArgs a) { tokens<f16>(a); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) tokens_bf16(TokensArgs a) { tokens<bf16>(a); }
