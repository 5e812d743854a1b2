#include "device.h"

#define RELAXED __ATOMIC_RELAXED
#define AGENT __HIP_MEMORY_SCOPE_AGENT

KERNEL(256) atomics(int *out, u64 *wide) {
    int n = (int)index();
    __hip_atomic_fetch_add(out + 0, n, RELAXED, AGENT);
    __hip_atomic_fetch_max(out + 1, n, RELAXED, AGENT);
    __hip_atomic_fetch_min(out + 2, -n, RELAXED, AGENT);
    __hip_atomic_fetch_xor(out + 3, n, RELAXED, AGENT);
    __hip_atomic_fetch_or(out + 4, n, RELAXED, AGENT);
    int before = 0;
    __hip_atomic_compare_exchange_strong(out + 5, &before, n + 1, RELAXED, RELAXED, AGENT);
    __hip_atomic_fetch_add(wide, (u64)n << 32, RELAXED, AGENT);
    // The returned values are all different, so their sum is known.
    int ticket = __hip_atomic_fetch_add(out + 6, 1, RELAXED, AGENT);
    __hip_atomic_fetch_add(out + 7, ticket, RELAXED, AGENT);
}
KERNEL(256) atomic_add_f32(float *sum) {
    __builtin_amdgcn_global_atomic_fadd_f32((__attribute__((address_space(1))) float *)sum, (float)item());
}
KERNEL(256) atomic_add_by_exchange(float *sum) {
    float seen = __hip_atomic_load(sum, RELAXED, AGENT);
    while (!__hip_atomic_compare_exchange_strong(sum, &seen, seen + 1.0f, RELAXED, RELAXED, AGENT)) {
    }
}
KERNEL(256) histogram(int *out, const u8 *x, u32 n) {
    SHARED int counts[16];
    if (item() < 16) counts[item()] = 0;
    barrier();
    for (u32 i = item(); i < n; i += 256) __hip_atomic_fetch_add(&counts[x[i] & 15], 1, RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    barrier();
    if (item() < 16) out[item()] = counts[item()];
}

// The block's elements in reverse, through LDS.
#define REVERSE(name, type)                                   \
    KERNEL(256) name(type *out, const type *in) {             \
        SHARED type held[256];                                \
        held[item()] = in[item()];                            \
        barrier();                                            \
        out[item()] = held[255 - item()];                     \
    }
REVERSE(reverse_u8, u8)
REVERSE(reverse_u16, u16)
REVERSE(reverse_u32, u32)
REVERSE(reverse_u64, u64)
REVERSE(reverse_int4, int4)

extern SHARED float dynamic[];
KERNEL(64) rotate(float *out, const float *in) {
    dynamic[item()] = in[item()];
    barrier();
    out[item()] = dynamic[(item() * 5 + 1) & 63];
}

// A private array, in scratch memory because its index is not known at compile time.
KERNEL(64) own_array(int *out, int n) {
    volatile int own[40];
    for (int i = 0; i < 40; i++) own[i] = i * item();
    int sum = 0;
    for (int i = 0; i < n; i++) sum += own[(i * 7 + item()) % 40];
    out[item()] = sum;
}

// Generic pointers: the compiler does not know the kind of memory.
KERNEL(64) generic(int *out, int where) {
    SHARED int held[64];
    int own[2];
    held[item()] = item() * 2;
    barrier();
    volatile int *from = where == 0 ? (volatile int *)out : where == 1 ? (volatile int *)held : (volatile int *)own;
    if (where == 2) { from[0] = item() * 5; from[1] = 1; }
    int value = from[where == 2 ? 0 : item() ^ 1];
    barrier();
    out[item()] = value;
}

KERNEL(64) narrow_loads(int *out, const short *a, const signed char *b, const u16 *c, const u8 *d) {
    out[item()] = a[item()] + b[item()] + c[item()] + d[item()];
}
KERNEL(64) narrow_stores(u16 *halves, u8 *bytes, const u32 *a) {
    halves[item()] = a[item()] >> 16;
    bytes[item()] = a[item()] >> 8;
}
KERNEL(64) wide(int4 *out, const int4 *a) { out[item()] = a[item()] + 1; }
KERNEL(64) three(float *out, const float *a) {
    for (int i = 0; i < 3; i++) out[3 * item() + i] = a[3 * item() + i] * (i + 1);
}

__attribute__((constant)) DEVICE const int table[8] = {1, 2, 4, 8, 16, 32, 64, 128};
KERNEL(64) constants(int *out) { out[item()] = table[item() & 7]; }

DEVICE int counter = 40;
DEVICE int *counter_by_pointer = &counter;
KERNEL(64) variables(int *out) {
    if (item() == 0) out[0] = ++*counter_by_pointer;
}

struct Mixed {
    char a;
    double b;
    short c[3];
    float *out;
};
KERNEL(64) by_value(struct Mixed x, u8 y) { x.out[item()] = (float)(x.a + x.b + x.c[2] + y); }
