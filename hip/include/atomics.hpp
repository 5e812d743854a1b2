// Atomic operations whose results do not depend on their order. They order no other accesses.
#pragma once
#include "device.hpp"

namespace hipvit {

HIPVIT_DEVICE void atomic_add(u64 *to, u64 x) {
#if HIPVIT_AMD
    __hip_atomic_fetch_add(to, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    atomicAdd(to, x);
#endif
}

HIPVIT_DEVICE void atomic_max(u32 *to, u32 x) {
#if HIPVIT_AMD
    __hip_atomic_fetch_max(to, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    atomicMax(to, x);
#endif
}

HIPVIT_DEVICE void atomic_or(u32 *to, u32 x) {
#if HIPVIT_AMD
    __hip_atomic_fetch_or(to, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    atomicOr(to, x);
#endif
}

} // namespace hipvit
