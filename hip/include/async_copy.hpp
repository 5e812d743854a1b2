// Copies from global memory to LDS that take no registers and that a thread waits for later: cp.async on sm_80 and later.
// Elsewhere ASYNC_COPIES is false, and copy_async copies at once.
#pragma once
#include "vec128.hpp"

namespace hipvit {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
constexpr bool ASYNC_COPIES = true;
#else
constexpr bool ASYNC_COPIES = false;
#endif

// Copies 16 bytes, or writes as many zeros if `exists` is false; `from` is not read then. Both are aligned to 16 bytes.
HIPVIT_DEVICE void copy_async(void *to, const void *from, bool exists) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(u32(__cvta_generic_to_shared(to))), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
#else
    *static_cast<Vec128 *>(to) = exists ? *static_cast<const Vec128 *>(from) : Vec128{{0, 0, 0, 0}};
#endif
}

// Ends a batch of copies of this thread.
HIPVIT_DEVICE void end_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the last PENDING batches of this thread are under way. Other threads see the copies after a barrier.
template <int PENDING> HIPVIT_DEVICE void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

} // namespace hipvit
