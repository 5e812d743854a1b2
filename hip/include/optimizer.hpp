// Elements of the kernels that update weights and states.
#pragma once
#include "device.hpp"
#include "optimizer.h"

namespace hipvit {

// Calls `update` with the index of each of the thread's elements.
template <class F> HIPVIT_DEVICE void for_each_element(u32 elements, F update) {
    const u64 start = u64(block_index()) * (OPTIMIZER_ELEMENTS * OPTIMIZER_THREADS) + thread_index();
#pragma unroll
    for (u32 i = 0; i < OPTIMIZER_ELEMENTS; ++i) {
        const u64 at = start + u64(i) * OPTIMIZER_THREADS;
        if (at < elements) update(at);
    }
}

// Element `at` of a gradient in T, or in f32.
template <class T> HIPVIT_DEVICE float gradient_at(const void *gradient, bool is_f32, u64 at) {
    return is_f32 ? ((const float *)gradient)[at] : to_float(((const T *)gradient)[at]);
}

} // namespace hipvit
