// Kernels that measure the emulator's speed.
#include "device.h"

KERNEL(256) arithmetic(float *out, u32 count) {
    float a = item(), b = 0.5f, c = 0.25f, d = 1.0f;
    for (u32 i = 0; i < count; i++) {
        a = __builtin_fmaf(a, b, c);
        b = __builtin_fmaf(b, c, d);
        c = c * d + a;
        d = d + a * 0.125f;
    }
    out[index()] = a + b + c + d;
}
KERNEL(256) stream(float4 *out, const float4 *in, u32 count) {
    u32 stride = __builtin_amdgcn_grid_size_x();
    for (u32 i = index(); i < count; i += stride) out[i] = in[i] * 2.0f;
}
KERNEL(256) through_lds(float *out, u32 count) {
    SHARED float held[256];
    held[item()] = item();
    float sum = 0;
    for (u32 i = 0; i < count; i++) {
        barrier();
        float other = held[(item() + i) & 255];
        barrier();
        held[item()] = other * 0.5f;
        sum += other;
    }
    out[index()] = sum;
}
