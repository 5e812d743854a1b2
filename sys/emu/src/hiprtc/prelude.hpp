// Included before every hipRTC program, as hipRTC's built-in headers are. Needs no ROCm headers and device libraries: HIP's
// keywords, indices, barriers, atomics, and functions that are clang built-ins.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define __launch_bounds_2(threads, waves) __launch_bounds_1(threads) __attribute__((amdgpu_waves_per_eu(waves)))
#define __launch_bounds_pick(one, two, name, ...) name
#define __launch_bounds__(...) __launch_bounds_pick(__VA_ARGS__, __launch_bounds_2, __launch_bounds_1)(__VA_ARGS__)

using size_t = decltype(sizeof(0));
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;

struct dim3 {
    unsigned x, y, z;
    constexpr __host__ __device__ dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define HIP_EMU_INDEX(name, axis, value)                                                                               \
    __declspec(property(get = get_##axis)) unsigned axis;                                                              \
    __device__ static __forceinline__ unsigned get_##axis() { return value; }
struct __hip_thread_index {
    HIP_EMU_INDEX(threadIdx, x, __builtin_amdgcn_workitem_id_x())
    HIP_EMU_INDEX(threadIdx, y, __builtin_amdgcn_workitem_id_y())
    HIP_EMU_INDEX(threadIdx, z, __builtin_amdgcn_workitem_id_z())
};
struct __hip_block_index {
    HIP_EMU_INDEX(blockIdx, x, __builtin_amdgcn_workgroup_id_x())
    HIP_EMU_INDEX(blockIdx, y, __builtin_amdgcn_workgroup_id_y())
    HIP_EMU_INDEX(blockIdx, z, __builtin_amdgcn_workgroup_id_z())
};
struct __hip_block_size {
    HIP_EMU_INDEX(blockDim, x, __builtin_amdgcn_workgroup_size_x())
    HIP_EMU_INDEX(blockDim, y, __builtin_amdgcn_workgroup_size_y())
    HIP_EMU_INDEX(blockDim, z, __builtin_amdgcn_workgroup_size_z())
};
struct __hip_grid_size {
    HIP_EMU_INDEX(gridDim, x, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x())
    HIP_EMU_INDEX(gridDim, y, __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y())
    HIP_EMU_INDEX(gridDim, z, __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z())
};
#undef HIP_EMU_INDEX
static constexpr __device__ __hip_thread_index threadIdx{};
static constexpr __device__ __hip_block_index blockIdx{};
static constexpr __device__ __hip_block_size blockDim{};
static constexpr __device__ __hip_grid_size gridDim{};

__device__ __forceinline__ void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ __forceinline__ void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
__device__ __forceinline__ void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }

template <class T> __device__ __forceinline__ T atomicAdd(T* to, T value) {
    return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> __device__ __forceinline__ T atomicMax(T* to, T value) {
    return __hip_atomic_fetch_max(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> __device__ __forceinline__ T atomicMin(T* to, T value) {
    return __hip_atomic_fetch_min(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> __device__ __forceinline__ T atomicExch(T* to, T value) {
    return __hip_atomic_exchange(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> __device__ __forceinline__ T atomicCAS(T* to, T expected, T value) {
    __hip_atomic_compare_exchange_strong(to, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                         __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}

__device__ __forceinline__ float fabsf(float x) { return __builtin_fabsf(x); }
__device__ __forceinline__ float sqrtf(float x) { return __builtin_sqrtf(x); }
__device__ __forceinline__ float floorf(float x) { return __builtin_floorf(x); }
__device__ __forceinline__ float ceilf(float x) { return __builtin_ceilf(x); }
__device__ __forceinline__ float rintf(float x) { return __builtin_rintf(x); }
__device__ __forceinline__ float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
__device__ __forceinline__ float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device__ __forceinline__ float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__device__ __forceinline__ double fabs(double x) { return __builtin_fabs(x); }
__device__ __forceinline__ double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
