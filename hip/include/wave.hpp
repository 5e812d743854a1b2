// Waves: their size, lane indices, and reductions over a wave or a block.
#pragma once
#include "device.hpp"

namespace hipvit {

// Lanes per wave: 64 on GCN and CDNA, 32 on RDNA and NVIDIA.
#if defined(__GFX9__) || defined(__GFX8__)
constexpr int WAVE = 64;
#else
constexpr int WAVE = 32;
#endif

// Blocks are one-dimensional, so that consecutive threads are consecutive lanes.
HIPVIT_DEVICE int lane_index() { return int(thread_index() % WAVE); }
HIPVIT_DEVICE int wave_index() { return int(thread_index() / WAVE); }

// Makes the writes of the wave's lanes to LDS visible to each other.
HIPVIT_DEVICE void wave_barrier() {
#if HIPVIT_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
    __syncwarp();
#endif
}

// Returns the value of lane `from`. All lanes of the wave must call it.
HIPVIT_DEVICE u32 read_lane(u32 x, int from) {
#if HIPVIT_AMD
    return u32(__builtin_amdgcn_ds_bpermute(from << 2, int(x)));
#else
    return __shfl_sync(0xffffffffu, x, from);
#endif
}
HIPVIT_DEVICE float read_lane(float x, int from) { return float_of(read_lane(bits_of(x), from)); }

// Returns true if `x` is true in any lane. All lanes of the wave must call it.
HIPVIT_DEVICE bool any_lane(bool x) {
#if !HIPVIT_AMD
    return __any_sync(0xffffffffu, x);
#elif defined(__GFX9__) || defined(__GFX8__)
    return __builtin_amdgcn_ballot_w64(x) != 0;
#else
    return __builtin_amdgcn_ballot_w32(x) != 0;
#endif
}

struct Sum {
    static HIPVIT_DEVICE float identity() { return 0.0f; }
    static HIPVIT_DEVICE float combine(float a, float b) { return a + b; }
};
struct Max {
    static HIPVIT_DEVICE float identity() { return -infinity(); }
    static HIPVIT_DEVICE float combine(float a, float b) { return larger(a, b); }
};

// Reduces over the lanes whose indices differ in the bits first, 2 · first, …, last. Every lane gets the result.
template <class Op> HIPVIT_DEVICE float reduce_lanes(float x, int first, int last) {
    for (int bit = first; bit <= last; bit *= 2) x = Op::combine(x, read_lane(x, lane_index() ^ bit));
    return x;
}

template <class Op> HIPVIT_DEVICE float reduce_wave(float x) { return reduce_lanes<Op>(x, 1, WAVE / 2); }

// The threads that share a row: a wave, or the whole block of THREADS. All threads of the group must call a reduction, and get its result.
template <int THREADS> struct RowGroup {
    bool whole_block;
    float *scratch; // LDS, THREADS / WAVE elements

    HIPVIT_DEVICE u32 size() const { return whole_block ? THREADS : WAVE; }
    HIPVIT_DEVICE u32 rank() const { return whole_block ? thread_index() : u32(lane_index()); }
    HIPVIT_DEVICE u32 row() const {
        return whole_block ? block_index() : block_index() * (THREADS / WAVE) + u32(wave_index());
    }
    template <class Op> HIPVIT_DEVICE float reduce(float x) const {
        x = reduce_wave<Op>(x);
        if (!whole_block) return x;
        barrier(); // the previous reduction has read the scratch
        if (lane_index() == 0) scratch[wave_index()] = x;
        barrier();
        float total = Op::identity();
        for (int wave = 0; wave < THREADS / WAVE; ++wave) total = Op::combine(total, scratch[wave]);
        return total;
    }
};

} // namespace hipvit
