// Synchronisation between GPUs through memory that they share: flags at system scope, and a clock to bound the waiting by.
//
// A block that gives data to another GPU's block:  writes; publish(); barrier(); one thread: store_flag(…).
// The block that takes them:  one thread: load_flag(…) until it is there; barrier(); observe(); reads.
// On AMD GPUs flags and data lie in uncached or fine-grained memory.
#pragma once
#include "device.hpp"

namespace hipvit {

// Makes what this wave wrote visible to other GPUs before what the block does after the next barrier. On NVIDIA the release
// of store_flag covers the whole block's writes, as they were ordered before it by the barrier.
HIPVIT_DEVICE void publish() {
#if HIPVIT_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
#endif
}

// After a barrier that followed load_flag: what was published before the flag is visible.
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

// On AMD without the acquire, which invalidates caches: observe does that once, after the last attempt.
HIPVIT_DEVICE u32 load_flag(const u32 *flag) {
#if HIPVIT_AMD
    return __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
#endif
}

// Between two looks at a flag: leaves the compute unit to other waves.
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
