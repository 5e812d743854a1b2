// The language under every kernel: entry points, indices, barriers, scalar types and the few math functions that are
// used, for clang's HIP (with or without ROCm's headers), hipRTC, nvcc and NVRTC alike. No header of theirs is needed.
// Neighbours: wave.hpp (lanes talk to each other), pack.hpp (vector loads), mma.hpp (matrix cores).
#pragma once

#if defined(__HIP__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define HIPVIT_AMD 1
#if defined(__AMDGCN__) || defined(__HIP_DEVICE_COMPILE__)
#define HIPVIT_AMD_DEVICE 1
#endif
#define HIPVIT_DEVICE __attribute__((device)) inline __attribute__((always_inline))
#define HIPVIT_LDS __attribute__((shared))
// A kernel of at most `threads` threads a block.
#define HIPVIT_KERNEL(threads)                                                                                         \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void
#else
#define HIPVIT_CUDA 1
#define HIPVIT_DEVICE __device__ __forceinline__
#define HIPVIT_LDS __shared__
#define HIPVIT_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#endif

namespace hipvit {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// 16-bit floats as storage; arithmetic is always f32.
struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};

HIPVIT_DEVICE u32 thread_index() {
#if HIPVIT_AMD
    return __builtin_amdgcn_workitem_id_x();
#else
    return threadIdx.x;
#endif
}

HIPVIT_DEVICE u32 block_index() {
#if HIPVIT_AMD
    return __builtin_amdgcn_workgroup_id_x();
#else
    return blockIdx.x;
#endif
}

// All threads of the block arrive, and see what the others wrote to LDS and global memory before.
HIPVIT_DEVICE void barrier() {
#if HIPVIT_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
    __syncthreads();
#endif
}

HIPVIT_DEVICE u32 bits_of(float x) {
#if HIPVIT_AMD
    return __builtin_bit_cast(u32, x);
#else
    return __float_as_uint(x);
#endif
}

HIPVIT_DEVICE float float_of(u32 bits) {
#if HIPVIT_AMD
    return __builtin_bit_cast(float, bits);
#else
    return __uint_as_float(bits);
#endif
}

HIPVIT_DEVICE float to_float(float x) { return x; }
HIPVIT_DEVICE float to_float(bf16 x) { return float_of(u32(x.bits) << 16); }
HIPVIT_DEVICE float to_float(f16 x) {
#if HIPVIT_AMD
    return float(__builtin_bit_cast(_Float16, x.bits));
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#endif
}

// Rounds to nearest, ties to even.
template <class T> HIPVIT_DEVICE T from_float(float x);
template <> HIPVIT_DEVICE float from_float<float>(float x) { return x; }
template <> HIPVIT_DEVICE f16 from_float<f16>(float x) {
#if HIPVIT_AMD
    return {__builtin_bit_cast(u16, _Float16(x))};
#else
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return {bits};
#endif
}
template <> HIPVIT_DEVICE bf16 from_float<bf16>(float x) {
    u32 bits = bits_of(x);
    u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return {u16(x != x ? 0x7fc0 : rounded)};
}

// 2^x by the hardware's instruction: some units in the last place, small results flush to zero.
HIPVIT_DEVICE float fast_exp2(float x) {
#if HIPVIT_AMD
    return __builtin_amdgcn_exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// As IEEE's minimumNumber and maximumNumber: a NaN loses.
#if HIPVIT_AMD
HIPVIT_DEVICE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HIPVIT_DEVICE float absolute(float x) { return __builtin_fabsf(x); }
HIPVIT_DEVICE float larger(float a, float b) { return __builtin_fmaxf(a, b); }
HIPVIT_DEVICE float smaller(float a, float b) { return __builtin_fminf(a, b); }
HIPVIT_DEVICE float square_root(float x) { return __builtin_sqrtf(x); }
#else
HIPVIT_DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
HIPVIT_DEVICE float absolute(float x) { return fabsf(x); }
HIPVIT_DEVICE float larger(float a, float b) { return fmaxf(a, b); }
HIPVIT_DEVICE float smaller(float a, float b) { return fminf(a, b); }
HIPVIT_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
#endif

// The compiler moves no instruction across. Without it, clang hoists the loads of a whole unrolled loop, and spills.
HIPVIT_DEVICE void schedule_fence() {
#if HIPVIT_AMD
    __builtin_amdgcn_sched_barrier(0);
#endif
}

// The compiler knows nothing of the value. Without it, clang computes what a loop asks of it once, before, and spills.
HIPVIT_DEVICE u32 opaque(u32 x) {
#if HIPVIT_AMD_DEVICE
    asm("" : "+v"(x));
#endif
    return x;
}

// e^x within some units in the last place: x·log2(e) in two parts, so that its rounding is not magnified.
HIPVIT_DEVICE float exponential(float x) {
    constexpr float LOG2E = 1.44269502e+0f, REST = 1.92596299e-8f;
    x = smaller(larger(x, -200.0f), 200.0f) + (x - x); // keeps NaN, and no infinite intermediate
    float high = x * LOG2E;
    float low = multiply_add(x, REST, multiply_add(x, LOG2E, -high));
    // The low part is far below 1: 2^low = 1 + low·ln 2.
    return fast_exp2(high) * multiply_add(low, 0.693147181f, 1.0f);
}

HIPVIT_DEVICE float infinity() {
#if HIPVIT_AMD
    return __builtin_huge_valf();
#else
    return __int_as_float(0x7f800000);
#endif
}

} // namespace hipvit
