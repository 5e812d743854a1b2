#include "device.h"

// Kernels whose counts are known beforehand.
KERNEL(256) add(half *out, const half *a, const half *b) { out[index()] = a[index()] + b[index()]; }

KERNEL(256) copy_strided(u32 *out, const u32 *in, u32 stride) { out[index()] = in[index() * stride]; }

// Every block loads the same 256 dwords, and its own.
KERNEL(256) add_shared(u32 *out, const u32 *shared, const u32 *own) { out[index()] = shared[item()] + own[index()]; }

// Each load's address is what the last one loaded.
KERNEL(64) chase(u32 *out, const u32 *next, u32 steps) {
    u32 at = item();
    for (u32 i = 0; i < steps; i++) at = next[at];
    out[item()] = at;
}

KERNEL(64) through_lds(u32 *out, const u32 *in, u32 stride) {
    SHARED u32 held[64 * 32];
    held[item() * stride] = in[item()];
    barrier();
    out[item()] = held[item() * stride];
}

KERNEL(256) exponentials(float *out) { out[index()] = __builtin_amdgcn_exp2f(float(item())); }

// The lanes in whose index the bit is set take one branch, the others the other.
KERNEL(64) branches(float *out, u32 bit, u32 steps) {
    float x = float(item());
    if ((item() & bit) == 0) {
        for (u32 i = 0; i < steps; i++) x = __builtin_amdgcn_exp2f(x);
    } else {
        for (u32 i = 0; i < steps; i++) x = __builtin_amdgcn_rsqf(x);
    }
    out[item()] = x;
}
