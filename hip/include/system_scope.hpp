// Synchronisation between GPUs through shared memory: flags at system scope, and a clock for time-outs.
//
// The sending block:    writes; publish(); barrier(); one thread calls store_flag(…).
// The receiving block:  one thread polls load_flag(…) until the flag is set; barrier(); observe(); reads.
// On AMD GPUs flags and data are in uncached or fine-grained memory.
#pragma once
#include "device.hpp"

namespace hipvit {

// Makes this wave's writes visible to other GPUs before what the block does after the next barrier. On NVIDIA the release of store_flag
// covers the writes of the whole block, since the barrier orders them before it.
HIPVIT_DEVICE void publish() {
#if HIPVIT_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
#endif
}

// Called after a barrier that followed load_flag: makes what was published before the flag visible.
HIPVIT_DEVICE void observe() {
#if HIPVIT_AMD
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
#endif
}

HIPVIT_DEVICE void store_flag(u32 *flag, u32 value) {
#if HIPVIT_AMD
    __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
#endif
}

// Without an acquire on AMD, as it invalidates caches: observe does so once, after the last poll.
HIPVIT_DEVICE u32 load_flag(const u32 *flag) {
#if HIPVIT_AMD
    return __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
#endif
}

// Leaves the compute unit to other waves between two polls of a flag.
HIPVIT_DEVICE void spin_pause() {
#if HIPVIT_AMD
    __builtin_amdgcn_s_sleep(1);
#endif
}

// Ticks of a clock of constant frequency per millisecond: 100 MHz on AMD GPUs (hipDeviceAttributeWallClockRate), nanoseconds on
// NVIDIA.
#if HIPVIT_AMD
constexpr u64 TICKS_PER_MS = 100000;
#else
constexpr u64 TICKS_PER_MS = 1000000;
#endif

HIPVIT_DEVICE u64 steady_clock() {
#if HIPVIT_AMD
    return __builtin_readsteadycounter();
#else
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
#endif
}

} // namespace hipvit
