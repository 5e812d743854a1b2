// bias_activation: what follows a product: activation(x + bias) + residual.
//
// x T [rows, channels], bias T [channels] or none, residual T [rows, channels] or none → T [rows, channels]; in place if
// wished. Activations: none, GELU by erf, GELU by tanh, quick GELU, SiLU, ReLU, tanh (activation.hpp).
// Alignment: any; packs of 16 bytes where channels and addresses allow it. Arithmetic: f32.
// Geometry: blocks of 256; a thread takes a pack of a row.
#include "activation.hpp"
#include "args.h"
#include "pack.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void bias_activation(const BiasActivationArgs &a) {
    const MatrixPack<T> pack(u64(block_index()) * 256 + thread_index(), a.channels);
    if (pack.row >= a.rows) return;
    const u64 at = pack.row * a.channels + pack.column;
    const T *x = (const T *)a.x + at;
    float value[PACK<T>];
    load_pack(x, pack.valid, aligned(x, 16), value);
    if (a.bias) {
        const T *bias = (const T *)a.bias + pack.column;
        float add[PACK<T>];
        load_pack(bias, pack.valid, aligned(bias, 16), add);
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) value[i] += add[i];
    }
#pragma unroll
    for (u32 i = 0; i < PACK<T>; ++i) value[i] = activate(a.activation, value[i]);
    if (a.residual) {
        const T *residual = (const T *)a.residual + at;
        float add[PACK<T>];
        load_pack(residual, pack.valid, aligned(residual, 16), add);
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) value[i] += add[i];
    }
    T *to = (T *)a.out + at;
    store_pack(to, pack.valid, aligned(to, 16), value);
}

HIPVIT_KERNEL(256) bias_activation_f32(BiasActivationArgs a) { bias_activation<float>(a); }
HIPVIT_KERNEL(256) bias_activation_f16(BiasActivationArgs a) { bias_activation<f16>(a); }
HIPVIT_KERNEL(256) bias_activation_bf16(BiasActivationArgs a) { bias_activation<bf16>(a); }
