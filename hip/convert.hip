// convert: one dtype to another, rounding to nearest, ties to even; too large for f16 becomes infinite.
//
// convert_S_T: S [elements] → T [elements].
// Alignment: any; vectors of eight elements where the addresses allow it. Geometry: blocks of 256; a thread takes eight.
#include "args.h"
#include "pack.hpp"

using namespace hipvit;

// Eight elements are one pack of 16 bits or two of 32.
template <class T> HIPVIT_DEVICE void load_eight(const T *from, u32 valid, float (&x)[8]) {
#pragma unroll
    for (u32 p = 0; p < 8; p += PACK<T>) {
        float pack[PACK<T>];
        load_pack(from + p, valid > p ? valid - p : 0, aligned(from, 16), pack);
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) x[p + i] = pack[i];
    }
}

template <class T> HIPVIT_DEVICE void store_eight(T *to, u32 valid, const float (&x)[8]) {
#pragma unroll
    for (u32 p = 0; p < 8; p += PACK<T>) {
        float pack[PACK<T>];
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) pack[i] = x[p + i];
        store_pack(to + p, valid > p ? valid - p : 0, aligned(to, 16), pack);
    }
}

template <class S, class T> HIPVIT_DEVICE void convert(const ConvertArgs &a) {
    const u64 at = (u64(block_index()) * 256 + thread_index()) * 8;
    if (at >= a.elements) return;
    const u32 valid = a.elements - at < 8 ? u32(a.elements - at) : 8;
    float x[8];
    load_eight((const S *)a.x + at, valid, x);
    store_eight((T *)a.out + at, valid, x);
}

HIPVIT_KERNEL(256) convert_f32_f16(ConvertArgs a) { convert<float, f16>(a); }
HIPVIT_KERNEL(256) convert_f32_bf16(ConvertArgs a) { convert<float, bf16>(a); }
HIPVIT_KERNEL(256) convert_f16_f32(ConvertArgs a) { convert<f16, float>(a); }
HIPVIT_KERNEL(256) convert_f16_bf16(ConvertArgs a) { convert<f16, bf16>(a); }
HIPVIT_KERNEL(256) convert_bf16_f32(ConvertArgs a) { convert<bf16, float>(a); }
HIPVIT_KERNEL(256) convert_bf16_f16(ConvertArgs a) { convert<bf16, f16>(a); }
