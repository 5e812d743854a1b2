#include "device.h"

// Steps of the Collatz sequence: lanes leave the loop after different numbers of iterations.
KERNEL(64) collatz(u32 *out, const u32 *in) {
    u64 n = in[index()];
    u32 steps = 0;
    while (n != 1) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        steps++;
    }
    out[index()] = steps;
}

__attribute__((noinline)) DEVICE int nested(int x, int depth) { return depth ? x * 3 + nested(x + 1, depth - 1) : x; }
KERNEL(64) calls(int *out) { out[item()] = nested(item(), 4); }

DEVICE int by_two(int x) { return x * 2; }
DEVICE int by_three(int x) { return x * 3; }
DEVICE int (*const functions[2])(int) = {by_two, by_three};
KERNEL(64) call_pointers(int *out, const int *which) { out[item()] = functions[which[item()]](item() + 1); }

KERNEL(64) choose(int *out, const int *in) {
    int result;
    switch (in[item()]) {
    case 0: result = 11; break;
    case 1: result = in[item()] * 7; break;
    case 2: result = out[item()]; break;
    case 3: result = __builtin_popcount(item()); break;
    case 4: result = -9; break;
    default: result = 99;
    }
    out[item()] = result;
}

// Counts every work-item of a three-dimensional grid.
KERNEL(256) positions(u32 *out) {
    u32 x = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    u32 y = __builtin_amdgcn_workgroup_id_y() * __builtin_amdgcn_workgroup_size_y() + __builtin_amdgcn_workitem_id_y();
    u32 z = __builtin_amdgcn_workgroup_id_z() * __builtin_amdgcn_workgroup_size_z() + __builtin_amdgcn_workitem_id_z();
    u32 width = __builtin_amdgcn_grid_size_x(), height = __builtin_amdgcn_grid_size_y();
    out[(z * height + y) * width + x] += 1 + x + 100 * y + 10000 * z;
}

// Each block takes a ticket: the order in which the blocks run.
KERNEL(64) tickets(u32 *counter, u32 *turn) {
    if (item() == 0) turn[block()] = __hip_atomic_fetch_add(counter, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// A tree reduction in LDS, with a barrier at each level.
KERNEL(256) tree(float *out, const float *in) {
    SHARED float held[256];
    held[item()] = in[index()];
    for (u32 half = 128; half; half /= 2) {
        barrier();
        if (item() < half) held[item()] += held[item() + half];
    }
    if (item() == 0) out[block()] = held[0];
}

// One wave waits for another's flag, with no barrier.
KERNEL(256) waits(u32 *flag, u32 *out) {
    u32 wave = item() / 64;
    if (wave == 0) {
        while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) != 1) __builtin_amdgcn_s_sleep(1);
        out[item()] = 7;
    } else if (item() == 128) {
        __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    }
}

KERNEL(64) ticks(u64 *out) {
    u64 begin = __builtin_readcyclecounter();
    __builtin_amdgcn_s_sleep(1);
    out[item()] = __builtin_readcyclecounter() - begin;
}
