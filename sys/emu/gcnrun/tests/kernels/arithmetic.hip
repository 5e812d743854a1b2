#include "device.h"

KERNEL(64) divide_f32(float *out, const float *a, const float *b) { out[item()] = a[item()] / b[item()]; }
KERNEL(64) root_f32(float *out, const float *a) { out[item()] = __builtin_sqrtf(a[item()]); }
KERNEL(64) fma_f32(float *out, const float *a, const float *b, const float *c) {
    out[item()] = __builtin_fmaf(a[item()], b[item()], c[item()]);
}
KERNEL(64) minimum_f32(float *out, const float *a, const float *b) { out[item()] = __builtin_fminf(a[item()], b[item()]); }
KERNEL(64) round_f32(float *out, const float *a, int how) {
    float x = a[item()];
    out[item()] = how == 0 ? __builtin_rintf(x) : how == 1 ? __builtin_floorf(x) : how == 2 ? __builtin_ceilf(x) : __builtin_truncf(x);
}
KERNEL(64) divide_f64(double *out, const double *a, const double *b) { out[item()] = a[item()] / b[item()]; }
KERNEL(64) root_f64(double *out, const double *a) { out[item()] = __builtin_sqrt(a[item()]); }
KERNEL(64) transcendental(float *out, const float *a) {
    float x = a[item()], y = __builtin_fabsf(x) + 1;
    out[6 * item() + 0] = __builtin_amdgcn_sinf(x);
    out[6 * item() + 1] = __builtin_amdgcn_cosf(x);
    out[6 * item() + 2] = __builtin_amdgcn_logf(y);
    out[6 * item() + 3] = __builtin_amdgcn_rsqf(y);
    out[6 * item() + 4] = __builtin_amdgcn_exp2f(x);
    out[6 * item() + 5] = __builtin_amdgcn_rcpf(y);
}
KERNEL(64) fraction(float *out, const float *a) {
    float x = a[item()];
    out[3 * item() + 0] = __builtin_amdgcn_fractf(x);
    out[3 * item() + 1] = __builtin_amdgcn_fmed3f(x, -0.5f, 0.5f);
    out[3 * item() + 2] = __builtin_amdgcn_ldexpf(x, 3);
}

KERNEL(64) divide_i32(int *out, const int *a, const int *b) { out[item()] = a[item()] / b[item()]; }
KERNEL(64) remain_u32(u32 *out, const u32 *a, const u32 *b) { out[item()] = a[item()] % b[item()]; }
KERNEL(64) divide_i64(long *out, const long *a, const long *b) { out[item()] = a[item()] / b[item()]; }
KERNEL(64) multiply_u64(u64 *out, const u64 *a, const u64 *b) { out[item()] = a[item()] * b[item()] + a[item()] / 7 + a[item()] % 1000003; }
KERNEL(64) shift_u64(u64 *out, const u64 *a, const u32 *b) {
    u32 n = b[item()] & 63;
    out[item()] = (a[item()] << n) ^ (a[item()] >> n) ^ (u64)((long)a[item()] >> n);
}
KERNEL(64) bits(u32 *out, const u32 *a, const u32 *b) {
    u32 x = a[item()], y = b[item()], *o = out + 8 * item();
    o[0] = __builtin_amdgcn_perm(x, y, 0x07020501);
    o[1] = __builtin_amdgcn_alignbyte(x, y, 1);
    o[2] = __builtin_amdgcn_sad_u8(x, y, 3);
    o[3] = __builtin_amdgcn_ubfe(x, 5, 9);
    o[4] = __builtin_bitreverse32(x);
    o[5] = __builtin_clz(x | 1);
    o[6] = __builtin_ctz(y | 256);
    o[7] = __builtin_popcount(x);
}
KERNEL(64) bits_u64(u64 *out, const u64 *a) {
    u64 x = a[item()], *o = out + 4 * item();
    o[0] = __builtin_clzll(x | 1);
    o[1] = __builtin_ctzll(x | 1ull << 60);
    o[2] = __builtin_popcountll(x);
    o[3] = __builtin_bitreverse64(x);
}

KERNEL(64) to_integers(int *out, const float *a) {
    float x = a[item()];
    out[4 * item() + 0] = (int)x;
    out[4 * item() + 1] = (int)(u32)__builtin_fabsf(x);
    out[4 * item() + 2] = (u8)(u32)__builtin_fabsf(x);
    out[4 * item() + 3] = (short)(int)x;
}
KERNEL(64) from_integers(float *out, const int *a) {
    out[3 * item() + 0] = (float)a[item()];
    out[3 * item() + 1] = (float)(u32)a[item()];
    out[3 * item() + 2] = (float)(u8)a[item()];
}
KERNEL(64) to_f16(half *out, const float *a) { out[item()] = (half)a[item()]; }
KERNEL(64) from_f16(float *out, const half *a) { out[item()] = (float)a[item()]; }
KERNEL(64) to_bf16(u16 *out, const float *a) { out[item()] = __builtin_bit_cast(u16, (__bf16)a[item()]); }
// Clang 22 selects halves of registers here for gfx11.
DEVICE inline u16 rounded(float x) {
    u32 bits = __builtin_bit_cast(u32, x);
    return x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
KERNEL(64) selected_halves(u16 *out, const float *a) {
    u16 high = rounded(a[item()]), low = rounded(-a[63 - item()]);
    out[2 * item()] = low > high ? low : (u16)7;
    out[2 * item() + 1] = high;
}
KERNEL(64) f64_and_f32(double *out, float *narrow, const double *a) {
    narrow[item()] = (float)a[item()];
    out[item()] = (double)(float)a[item()];
}

KERNEL(64) packed_f16(half2 *out, const half2 *a, const half2 *b) { out[item()] = a[item()] * b[item()] + a[item()]; }
KERNEL(64) packed_i16(short2 *out, const short2 *a, const short2 *b) { out[item()] = (a[item()] + b[item()]) * b[item()] - (a[item()] >> (short)3); }
KERNEL(64) chain_f16(half *out, const half *a, const half *b) {
    half x = a[item()];
    for (int i = 0; i < 4; i++) x = x * b[item()] + (half)0.5;
    out[item()] = x;
}
KERNEL(64) dot2(float *out, const half2 *a, const half2 *b) { out[item()] = __builtin_amdgcn_fdot2(a[item()], b[item()], 1.5f, false); }
KERNEL(64) dot4(int *out, const int *a, const int *b) {
#if defined(__GFX11__) || defined(__GFX12__)
    int dot = __builtin_amdgcn_sudot4(true, a[item()], true, b[item()], 5, false);
#else
    int dot = __builtin_amdgcn_sdot4(a[item()], b[item()], 5, false);
#endif
    out[2 * item()] = dot;
    out[2 * item() + 1] = __builtin_amdgcn_udot4(a[item()], b[item()], 1, false);
}
