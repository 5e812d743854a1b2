// Kernels with faults, depending on their arguments.
#include "device.h"

KERNEL(256) copy(int *out, const int *in, u32 n) {
    if (index() < n) out[index()] = in[index()];
}
KERNEL(256) copy_without_bound(int *out, const int *in, u32 n) { out[index()] = in[index()]; }

KERNEL(64) load_at(int *out, const char *in, int offset) { out[item()] = *(const volatile int *)(in + offset); }
// The same by a scalar load, which ignores the two lowest bits of its address.
KERNEL(64) scalar_load_at(int *out, const char *in, int offset) { out[item()] = *(const int *)(in + offset); }
KERNEL(64) atomic_at(char *in, int offset) {
    __hip_atomic_fetch_add((int *)(in + offset), 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// LDS: `n` of the 64 dwords are written and read.
extern SHARED int dynamic[];
KERNEL(64) lds_elements(int *out, u32 first) {
    volatile int *held = dynamic;
    held[first + item()] = item();
    barrier();
    out[item()] = held[first + item()];
}

KERNEL(64) own_elements(int *out, int n) {
    volatile int own[16];
    for (int i = 0; i < n; i++) own[i * 7] = i;
    out[item()] = own[0];
}

// Reads of uninitialised memory.
KERNEL(64) unwritten_lds(int *out, int write) {
    SHARED int held[64];
    if (write) held[item()] = item();
    barrier();
    out[item()] = ((volatile int *)held)[item()];
}
KERNEL(64) unwritten_own(int *out, int write) {
    volatile int own[8];
    if (write) own[3] = 5;
    out[item()] = own[3];
}
KERNEL(64) unwritten_register(int *out) {
    int value;
    asm volatile("v_mov_b32 %0, v250" : "=v"(value) : : "v250");
    out[item()] = value;
}
KERNEL(64) written_register(int *out) {
    int value;
    asm volatile("v_mov_b32 v250, 5\n v_mov_b32 %0, v250" : "=v"(value) : : "v250");
    out[item()] = value;
}
KERNEL(64) branch_on(int *out, const int *in) {
    out[item()] = 1;
    // Volatile, so that the compiler keeps the branch.
    if (in[item()] > 5) asm volatile("s_nop 1");
}
KERNEL(64) scalar_branch_on(int *out, const int *in) {
    if (*in > 5) asm volatile("s_nop 1");
    out[item()] = 1;
}
KERNEL(64) address_from(int *out, const u32 *in) { out[in[item()]] = 1; }

// The first half of the waves write what the others read.
KERNEL(256) hand_over(int *out, int *unused, int with_barrier) {
    SHARED int held[128];
    volatile int *all = held;
    if (item() < 128) all[item()] = -1;
    barrier();
    if (item() < 128) all[item()] = item();
    if (with_barrier) barrier();
    if (item() >= 128) out[item()] = all[item() - 128];
}
KERNEL(256) overwrite(int *out, int *unused, int with_barrier) {
    SHARED int held[256];
    ((volatile int *)held)[item()] = item();
    barrier();
    int value = ((volatile int *)held)[item() ^ 128];
    if (with_barrier) barrier();
    ((volatile int *)held)[item()] = value;
    barrier();
    out[item()] = ((volatile int *)held)[item()];
}
// The same through global memory, where only another order of the waves shows it.
KERNEL(256) neighbour_in_global(int *out, int *held, int with_barrier) {
    ((volatile int *)held)[item()] = item();
    if (with_barrier) barrier();
    out[item()] = ((volatile int *)held)[item() ^ 128];
}

#if defined(__GFX12__)
#define BARRIER "s_barrier_signal -1\n s_barrier_wait -1"
#else
#define BARRIER "s_barrier"
#endif
KERNEL(256) barriers_apart(int *out, int apart) {
    if (apart && item() < 128) {
        asm volatile(BARRIER "\n s_nop 1");
    } else {
        asm volatile(BARRIER "\n s_nop 2");
    }
    out[item()] = 1;
}
KERNEL(256) some_end_early(int *out, int early) {
    out[item()] = 1;
    if (early && item() >= 128) return;
    barrier();
    out[item()] = 2;
}

KERNEL(64) loop(int *out, int forever) {
    do {
        out[item()] = 1;
        asm volatile("" ::: "memory");
    } while (forever);
}
KERNEL(64) trap(int *out, int doit) {
    if (doit) __builtin_trap();
    out[item()] = 1;
}
KERNEL(64) jump(int *out, int wild) {
    if (wild) asm volatile("s_mov_b64 s[20:21], 64\n s_setpc_b64 s[20:21]" : : : "s20", "s21");
    out[item()] = 1;
}
// An instruction that compilers do not use and the emulator does not support.
KERNEL(64) rare(int *out, int doit) {
    if (doit) asm volatile("s_sendmsghalt sendmsg(MSG_INTERRUPT)");
    out[item()] = 1;
}
