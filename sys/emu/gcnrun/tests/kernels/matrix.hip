#include "device.h"

// One tile each: c [m, n] = a [m, k] · b [n, k]ᵀ, with the operands' layouts of the ISA guides.
#if defined(__GFX11__)
#define WMMA(name, out_type, in_type, acc_type, call, stride)                                \
    KERNEL(32) name(out_type *c, const in_type *a, const in_type *b) {                       \
        acc_type acc = {};                                                                   \
        in_type x = a[item() & 15], y = b[item() & 15];                                      \
        acc = call;                                                                          \
        for (int i = 0; i < 8; i++) c[(2 * i + (item() >> 4)) * 16 + (item() & 15)] = acc[stride * i]; \
    }
WMMA(wmma_f32_f16, float, half16, float8, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, acc), 1)
WMMA(wmma_f32_bf16, float, short16, float8, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, acc), 1)
WMMA(wmma_f16_f16, half, half16, half16, __builtin_amdgcn_wmma_f16_16x16x16_f16_w32(x, y, acc, false), 2)
WMMA(wmma_i32_i8, int, int4, int8, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, x, true, y, acc, false), 1)
#elif defined(__GFX12__)
#define WMMA(name, out_type, in_type, acc_type, call)                                        \
    KERNEL(32) name(out_type *c, const in_type *a, const in_type *b) {                       \
        u32 row = item() & 15, group = item() >> 4;                                          \
        acc_type acc = {};                                                                   \
        in_type x = a[row * 2 + group], y = b[row * 2 + group];                              \
        acc = call;                                                                          \
        for (u32 i = 0; i < 8; i++) c[(group * 8 + i) * 16 + row] = acc[i];                  \
    }
WMMA(wmma_f32_f16, float, half8, float8, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, acc))
WMMA(wmma_f32_bf16, float, short8, float8, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, acc))
WMMA(wmma_i32_i8, int, int2, int8, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x, true, y, acc, false))
WMMA(wmma_fp8, float, int2, float8, __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(x, y, acc))
WMMA(wmma_fp8_bf8, float, int2, float8, __builtin_amdgcn_wmma_f32_16x16x16_fp8_bf8_w32_gfx12(x, y, acc))
WMMA(wmma_bf8, float, int2, float8, __builtin_amdgcn_wmma_f32_16x16x16_bf8_bf8_w32_gfx12(x, y, acc))
#else
#define MFMA16(name, out_type, in_type, acc_type, each, call)                                \
    KERNEL(64) name(out_type *c, const in_type *a, const in_type *b) {                       \
        u32 row = item() & 15, group = item() >> 4;                                          \
        in_type x = a[row * 4 + group], y = b[row * 4 + group];                              \
        acc_type acc = {};                                                                   \
        acc = call;                                                                          \
        for (u32 i = 0; i < 4; i++) c[(group * 4 + i) * 16 + row] = acc[i];                  \
    }
#define MFMA32(name, out_type, in_type, acc_type, call)                                      \
    KERNEL(64) name(out_type *c, const in_type *a, const in_type *b) {                       \
        u32 row = item() & 31, group = item() >> 5;                                          \
        in_type x = a[row * 2 + group], y = b[row * 2 + group];                              \
        acc_type acc = {};                                                                   \
        acc = call;                                                                          \
        for (u32 i = 0; i < 16; i++) c[((i >> 2) * 8 + group * 4 + (i & 3)) * 32 + row] = acc[i]; \
    }
MFMA16(mfma16_f16, float, half4, float4, 4, __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, acc, 0, 0, 0))
#if defined(__gfx908__)
MFMA16(mfma16_bf16, float, short2, float4, 2, __builtin_amdgcn_mfma_f32_16x16x8bf16(x, y, acc, 0, 0, 0))
MFMA32(mfma32_bf16, float, short2, float16, __builtin_amdgcn_mfma_f32_32x32x4bf16(x, y, acc, 0, 0, 0))
#else
MFMA16(mfma16_bf16, float, short4, float4, 4, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, acc, 0, 0, 0))
MFMA32(mfma32_bf16, float, short4, float16, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x, y, acc, 0, 0, 0))
#endif
MFMA16(mfma16_f32, float, float, float4, 1, __builtin_amdgcn_mfma_f32_16x16x4f32(x, y, acc, 0, 0, 0))
MFMA32(mfma32_f16, float, half4, float16, __builtin_amdgcn_mfma_f32_32x32x8f16(x, y, acc, 0, 0, 0))
MFMA32(mfma32_f32, float, float, float16, __builtin_amdgcn_mfma_f32_32x32x2f32(x, y, acc, 0, 0, 0))
#if defined(__gfx942__)
MFMA16(mfma16_i8, int, long, int4, 8, __builtin_amdgcn_mfma_i32_16x16x32_i8(x, y, acc, 0, 0, 0))
MFMA32(mfma32_i8, int, long, int16, __builtin_amdgcn_mfma_i32_32x32x16_i8(x, y, acc, 0, 0, 0))
MFMA16(mfma16_fp8, float, long, float4, 8, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(x, y, acc, 0, 0, 0))
MFMA16(mfma16_fp8_bf8, float, long, float4, 8, __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(x, y, acc, 0, 0, 0))
MFMA32(mfma32_bf8_fp8, float, long, float16, __builtin_amdgcn_mfma_f32_32x32x16_bf8_fp8(x, y, acc, 0, 0, 0))
MFMA32(mfma32_bf8, float, long, float16, __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8(x, y, acc, 0, 0, 0))

// SMFMAC: of every four elements of a row of A two are there; `indices` has two bits for each, two bytes for a row's group of lanes,
// the first of which ABID 0 selects, the second ABID 1.
#define SMFMAC16(name, out_type, in_type, dense_type, acc_type, index_type, abid, call)       \
    KERNEL(64) name(out_type *c, const in_type *a, const dense_type *b, const index_type *indices) { \
        u32 row = item() & 15, group = item() >> 4;                                          \
        in_type x = a[row * 4 + group];                                                      \
        dense_type y = b[row * 4 + group];                                                   \
        int index = int(indices[row * 4 + group]) << (abid * 8 * sizeof(index_type));        \
        acc_type acc = {};                                                                   \
        acc = call;                                                                          \
        for (u32 i = 0; i < 4; i++) c[(group * 4 + i) * 16 + row] = acc[i];                  \
    }
SMFMAC16(smfmac16_f16, float, half4, half8, float4, u8, 0, __builtin_amdgcn_smfmac_f32_16x16x32_f16(x, y, acc, index, 0, 0))
SMFMAC16(smfmac16_bf16, float, short4, short8, float4, u8, 3, __builtin_amdgcn_smfmac_f32_16x16x32_bf16(x, y, acc, index, 0, 3))
SMFMAC16(smfmac16_first, float, half4, half8, float4, u8, 0, __builtin_amdgcn_smfmac_f32_16x16x32_f16(x, y, acc, index, 1, 2))
SMFMAC16(smfmac16_i8, int, int2, int4, int4, u16, 1, __builtin_amdgcn_smfmac_i32_16x16x64_i8(x, y, acc, index, 0, 1))
KERNEL(64) smfmac32_f16(float *c, const half4 *a, const half8 *b, const u8 *indices) {
    u32 row = item() & 31, group = item() >> 5;
    float16 acc = {};
    acc = __builtin_amdgcn_smfmac_f32_32x32x16_f16(a[row * 2 + group], b[row * 2 + group], acc, indices[row * 2 + group], 0, 0);
    for (u32 i = 0; i < 16; i++) c[((i >> 2) * 8 + group * 4 + (i & 3)) * 32 + row] = acc[i];
}
#else
MFMA16(mfma16_i8, int, int, int4, 4, __builtin_amdgcn_mfma_i32_16x16x16i8(x, y, acc, 0, 0, 0))
MFMA32(mfma32_i8, int, int, int16, __builtin_amdgcn_mfma_i32_32x32x8i8(x, y, acc, 0, 0, 0))
#endif
#if !defined(__gfx908__)
// f64 has a layout of its own: a lane's four results are four rows apart.
KERNEL(64) mfma16_f64(double *c, const double *a, const double *b) {
    u32 row = item() & 15, group = item() >> 4;
    double4 acc = {};
    acc = __builtin_amdgcn_mfma_f64_16x16x4f64(a[row * 4 + group], b[row * 4 + group], acc, 0, 0, 0);
    for (u32 i = 0; i < 4; i++) c[(4 * i + group) * 16 + row] = acc[i];
}
#endif
#endif

#if defined(__gfx942__) || defined(__GFX12__)
// Each item converts four floats to FP8 and BF8, and these back.
KERNEL(64) convert_float8(int *fp8, int *bf8, float *back, const float *x) {
    x += 4 * item();
    int f = __builtin_amdgcn_cvt_pk_fp8_f32(x[0], x[1], 0x55555555, false);
    f = __builtin_amdgcn_cvt_pk_fp8_f32(x[2], x[3], f, true);
    int b = __builtin_amdgcn_cvt_pk_bf8_f32(x[2], x[3], 0x55555555, true);
    b = __builtin_amdgcn_cvt_pk_bf8_f32(x[0], x[1], b, false);
    fp8[item()] = f;
    bf8[item()] = b;
    back += 8 * item();
    float2 low = __builtin_amdgcn_cvt_pk_f32_fp8(f, false), high = __builtin_amdgcn_cvt_pk_f32_bf8(b, true);
    back[0] = low.x;
    back[1] = low.y;
    back[2] = __builtin_amdgcn_cvt_f32_fp8(f, 2);
    back[3] = __builtin_amdgcn_cvt_f32_fp8(f, 3);
    back[4] = __builtin_amdgcn_cvt_f32_bf8(b, 0);
    back[5] = __builtin_amdgcn_cvt_f32_bf8(b, 1);
    back[6] = high.x;
    back[7] = high.y;
}
#endif
