// Atomic operations. They order no other accesses. What they leave does not depend on their order.
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

HIPVIT_DEVICE void atomic_min(u32 *to, u32 x) {
#if HIPVIT_AMD
    __hip_atomic_fetch_min(to, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    atomicMin(to, x);
#endif
}

HIPVIT_DEVICE void atomic_or(u32 *to, u32 x) {
#if HIPVIT_AMD
    __hip_atomic_fetch_or(to, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    atomicOr(to, x);
#endif
}

// Adds 1 to a counter in LDS, and returns what it was before, which differs for each thread.
HIPVIT_DEVICE u32 take_next(u32 *counter) {
#if HIPVIT_AMD
    return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
#else
    return atomicAdd(counter, 1u);
#endif
}

} // namespace hipvit
