// Finds the last of several blocks of a launch, which reads what the others have written. No block waits.
#pragma once
#include "device.hpp"

namespace hipvit {

// Returns true for the last of `blocks` blocks that call it with `arrivals`, in all of its threads. The writes of the other blocks before
// the call are then visible to this block. The counter in memory is 0 before the first block calls it and after the last one.
HIPVIT_DEVICE bool is_last_block(u32 *arrivals, u32 blocks) {
    HIPVIT_LDS static u32 arrived;
#if HIPVIT_AMD
    // By each wave: a wave waits only for its own writes.
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#endif
    barrier();
    if (thread_index() == 0) {
#if HIPVIT_AMD
        arrived = __hip_atomic_fetch_add(arrivals, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) + 1;
        if (arrived == blocks) __hip_atomic_store(arrivals, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
        // On NVIDIA the barriers extend the order of this thread's atomic operation to the whole block.
        u32 before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrivals) : "memory");
        arrived = before + 1;
        if (arrived == blocks) asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(arrivals) : "memory");
#endif
    }
    barrier();
    if (arrived != blocks) return false;
#if HIPVIT_AMD
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
#endif
    return true;
}

} // namespace hipvit
