// bias_activation: what follows a product: activation(x + bias) + residual.
//
// x T [rows, channels], bias T [channels] or none, residual T [rows, channels] or none → T [rows, channels]; in place if
// wished. Activations: none, GELU by erf, GELU by tanh, quick GELU, SiLU, ReLU, tanh (activation.hpp).
// Alignment: any; packs of 16 bytes where channels and addresses allow it. Arithmetic: f32.
// Geometry: blocks of 256; a thread takes a pack of a row.
#include "bias_activation.h"
#include "activation.hpp"
#include "pack.hpp"

using namespace hipvit;

// `code` is the same for all threads.
HIPVIT_DEVICE float activate(u32 code, float x) {
    switch (ActivationCode(code)) {
    case ActivationCode::GeluErf: return gelu_erf(x);
    case ActivationCode::GeluTanh: return gelu_tanh(x);
    case ActivationCode::QuickGelu: return gated(x, 1.702f * x);
    case ActivationCode::Silu: return gated(x, x);
    case ActivationCode::Relu: return x > 0.0f ? x : x != x ? x : 0.0f;
    case ActivationCode::Tanh: return hyperbolic_tangent(x);
    default: return x;
    }
}

template <class T> HIPVIT_DEVICE void bias_activation(const BiasActivationArgs &a) {
    const MatrixPack<T> pack(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
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

HIPVIT_KERNEL(ELEMENTWISE_THREADS) bias_activation_f32(BiasActivationArgs a) { bias_activation<float>(a); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) bias_activation_f16(BiasActivationArgs a) { bias_activation<f16>(a); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) bias_activation_bf16(BiasActivationArgs a) { bias_activation<bf16>(a); }
