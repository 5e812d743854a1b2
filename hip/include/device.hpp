// The device language of all kernels: entry points, indices, barriers, scalar types and math functions, for clang's HIP
// (with or without ROCm's headers), hipRTC, nvcc and NVRTC. None of their headers is needed.
// See also wave.hpp (cross-lane operations), vec128.hpp (vectorised access), mma.hpp (matrix cores).
#pragma once

#if defined(__HIP__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define HIPVIT_AMD 1
#if defined(__AMDGCN__) || defined(__HIP_DEVICE_COMPILE__)
#define HIPVIT_AMD_DEVICE 1
#endif
#define HIPVIT_DEVICE __attribute__((device)) inline __attribute__((always_inline))
#define HIPVIT_LDS __attribute__((shared))
// A table of constants at namespace scope.
#define HIPVIT_CONSTANT static __attribute__((constant)) const
// Declares a kernel with at most `threads` threads per block.
#define HIPVIT_KERNEL(threads)                                                                                         \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void
// Declares a kernel that is compiled for at least `blocks` blocks per multiprocessor, which bounds the registers; 0: no bound. It
// has no effect on AMD.
#define HIPVIT_KERNEL_BLOCKS(threads, blocks) HIPVIT_KERNEL(threads)
// On AMD: the kernel is compiled for at least `waves` waves per SIMD, which bounds the registers; 0: no bound.
#define HIPVIT_WAVES(waves) __attribute__((amdgpu_waves_per_eu(waves)))
// A u32 that the host reads from the loaded module by its name. No kernel has to use it. The value follows the name.
#define HIPVIT_MODULE_GLOBAL(name, ...)                                                                                \
    extern "C" {                                                                                                       \
    __attribute__((constant)) __attribute__((used)) hipvit::u32 name = __VA_ARGS__;                                    \
    }
#else
#define HIPVIT_AMD 0
#define HIPVIT_CUDA 1
#define HIPVIT_DEVICE __device__ __forceinline__
#define HIPVIT_LDS __shared__
#define HIPVIT_CONSTANT static __constant__ const
#define HIPVIT_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define HIPVIT_KERNEL_BLOCKS(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define HIPVIT_WAVES(waves)
#define HIPVIT_MODULE_GLOBAL(name, ...)                                                                                \
    extern "C" {                                                                                                       \
    __constant__ hipvit::u32 name = __VA_ARGS__;                                                                       \
    }
#endif

// Expands ENTRY(name, T) for every dtype T that the kernels compute in. With HIPVIT_DTYPE (f32, f16 or bf16) only for that one, which
// saves time where kernels are compiled at run time.
#ifdef HIPVIT_DTYPE
#define HIPVIT_FOR_DTYPES(ENTRY, name) HIPVIT_EXPAND(ENTRY, name, HIPVIT_DTYPE)
#define HIPVIT_EXPAND(ENTRY, name, T) ENTRY(name, T)
#else
#define HIPVIT_FOR_DTYPES(ENTRY, name) ENTRY(name, f32) ENTRY(name, f16) ENTRY(name, bf16)
#endif

namespace hipvit {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

using f32 = float;

// Storage only; arithmetic is f32.
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

// The number of zeros below the lowest one; `x` is not 0.
HIPVIT_DEVICE u32 trailing_zeros(u32 x) {
#if HIPVIT_AMD
    return u32(__builtin_ctz(x));
#else
    return u32(__ffs(int(x)) - 1);
#endif
}

// Waits for all threads of the block, and makes their writes to LDS and global memory visible to each other.
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
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return {bits};
#else
    u32 bits = bits_of(x);
    u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return {u16(x != x ? 0x7fc0 : rounded)};
#endif
}

// 2^x by the hardware's instruction: accurate to some ULP, small results flush to zero.
HIPVIT_DEVICE float fast_exp2(float x) {
#if HIPVIT_AMD
    return __builtin_amdgcn_exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// log₂ x by the hardware's instruction: accurate to some ULP of max(|log₂ x|, 1); log₂ 0 is −∞.
HIPVIT_DEVICE float fast_log2(float x) {
#if HIPVIT_AMD
    return __builtin_amdgcn_logf(x);
#else
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// 1 / x by the hardware's instruction: accurate to an ULP, small results flush to zero.
HIPVIT_DEVICE float fast_reciprocal(float x) {
#if HIPVIT_AMD
    return __builtin_amdgcn_rcpf(x);
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// larger and smaller are IEEE 754's maximumNumber and minimumNumber: they return the number if the other operand is NaN.
#if HIPVIT_AMD
HIPVIT_DEVICE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HIPVIT_DEVICE float absolute(float x) { return __builtin_fabsf(x); }
HIPVIT_DEVICE float larger(float a, float b) { return __builtin_fmaxf(a, b); }
HIPVIT_DEVICE float smaller(float a, float b) { return __builtin_fminf(a, b); }
HIPVIT_DEVICE float square_root(float x) { return __builtin_sqrtf(x); }
HIPVIT_DEVICE float nearest(float x) { return __builtin_rintf(x); } // ties to even
// A product that is rounded: the compiler does not fuse it with a sum.
HIPVIT_DEVICE float product(float a, float b) {
#pragma clang fp contract(off)
    return a * b;
}
#else
HIPVIT_DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
HIPVIT_DEVICE float absolute(float x) { return fabsf(x); }
HIPVIT_DEVICE float larger(float a, float b) { return fmaxf(a, b); }
HIPVIT_DEVICE float smaller(float a, float b) { return fminf(a, b); }
HIPVIT_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
HIPVIT_DEVICE float nearest(float x) { return rintf(x); }
HIPVIT_DEVICE float product(float a, float b) { return __fmul_rn(a, b); }
#endif

// x / y within 2 ULP. NVRTC's correctly rounded division branches for each element, so that latencies do not overlap.
HIPVIT_DEVICE float quotient(float x, float y) {
#if HIPVIT_AMD
    return x / y;
#else
    float result;
    asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
#endif
}

// The compiler moves no instruction across it. Without it, clang hoists all loads of an unrolled loop, and spills.
HIPVIT_DEVICE void schedule_fence() {
#if HIPVIT_AMD
    __builtin_amdgcn_sched_barrier(0);
#endif
}

// Whether code that loads in one of two ways is compiled once for each way. Otherwise NVRTC branches at every load instead of
// issuing the loads back to back (H200, CUDA 13: 6–17 % of attention's time where it copies through registers). clang does not
// need it, and spends registers on two copies.
#if HIPVIT_AMD
constexpr bool SPECIALIZE_LOADS = false;
#else
constexpr bool SPECIALIZE_LOADS = true;
#endif

// Hides the origin of the value from the compiler. Without it, clang and NVRTC hoist what a loop computes from the value, which
// takes registers, or spills.
HIPVIT_DEVICE u32 opaque(u32 x) {
#if HIPVIT_AMD_DEVICE
    asm("" : "+v"(x));
#elif defined(__CUDA_ARCH__)
    asm("" : "+r"(x));
#endif
    return x;
}
// Clang keeps no pointer too many.
template <class T> HIPVIT_DEVICE const T *opaque(const T *x) {
#if defined(__CUDA_ARCH__)
    asm("" : "+l"(x));
#endif
    return x;
}
HIPVIT_DEVICE float opaque(float x) { return float_of(opaque(bits_of(x))); }

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

// e^x, accurate to some ULP: x · log2(e) in two parts, so that its rounding error is not magnified.
HIPVIT_DEVICE float exponential(float x) {
    constexpr float LOG2E = 1.44269502e+0f, REST = 1.92596299e-8f;
    x = smaller(larger(x, -200.0f), 200.0f) + (x - x); // keeps NaN, and no intermediate is infinite
    float high = x * LOG2E;
    float low = multiply_add(x, REST, multiply_add(x, LOG2E, -high));
    // The low part is far below 1: 2^low = 1 + low·ln 2.
    return fast_exp2(high) * multiply_add(low, LN_2, 1.0f);
}

HIPVIT_DEVICE float infinity() {
#if HIPVIT_AMD
    return __builtin_huge_valf();
#else
    return __int_as_float(0x7f800000);
#endif
}

} // namespace hipvit
