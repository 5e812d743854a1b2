// swiglu: the SiLU gate, silu(gate) · value, where a row of x is the gates and then the values, a bias added to both.
//
// x T [rows, 2·channels], bias T [2·channels] or none → T [rows, channels].
// Alignment: any; packs of 16 bytes where channels and addresses allow it. Arithmetic: f32.
// Geometry: blocks of 256; a thread takes a pack of a row of the result.
#include "swiglu.h"
#include "activation.hpp"
#include "pack.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void swiglu(const SwiGluArgs &a) {
    const MatrixPack<T> pack(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (pack.row >= a.rows) return;
    float half[2][PACK<T>];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const u64 column = u64(h) * a.channels + pack.column;
        const T *x = (const T *)a.x + pack.row * 2 * a.channels + column;
        load_pack(x, pack.valid, aligned(x, 16), half[h]);
        if (a.bias) {
            const T *bias = (const T *)a.bias + column;
            float add[PACK<T>];
            load_pack(bias, pack.valid, aligned(bias, 16), add);
#pragma unroll
            for (u32 i = 0; i < PACK<T>; ++i) half[h][i] += add[i];
        }
    }
    float value[PACK<T>];
#pragma unroll
    for (u32 i = 0; i < PACK<T>; ++i) value[i] = gated(half[0][i], half[0][i]) * half[1][i];
    T *to = (T *)a.out + pack.row * a.channels + pack.column;
    store_pack(to, pack.valid, aligned(to, 16), value);
}

HIPVIT_KERNEL(ELEMENTWISE_THREADS) swiglu_f32(SwiGluArgs a) { swiglu<float>(a); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) swiglu_f16(SwiGluArgs a) { swiglu<f16>(a); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) swiglu_bf16(SwiGluArgs a) { swiglu<bf16>(a); }
