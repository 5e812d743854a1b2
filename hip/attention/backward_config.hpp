// The tile configuration of attention's backward pass, by element type, head size and architecture.
#pragma once
#include "warpgroup_mma.hpp"

namespace hipvit {

struct BackwardConfig {
    int waves;      // of a block
    int groups;     // of 16 rows per wave that a block holds
    int tile;       // rows of a tile
    bool registers; // whether the fragments of the rows that a block holds stay in registers, otherwise in LDS
    bool prefetch;  // whether the next tile is loaded while this one is multiplied, which takes registers
    int stages;     // tiles in LDS: 1, or 2 if the next tile is copied asynchronously
};

// The layout in LDS of a block that computes GRADIENTS gradients of the rows that it holds.
template <class T, int D, int GRADIENTS> struct BackwardLayout {
    using Fragments = Mma<T>;
    // Rows are longer than their contents by the alignment of fragments, but at least 8 bytes, so that those of a fragment start in different
    // banks. With 16 bytes and without the swizzle below, LDS of gfx942 would take 42 % more cycles (kv, heads of 64 channels, f16; counted on
    // the emulated GPU).
    static constexpr int PADDING = Fragments::ALIGNED * int(sizeof(T)) < 8 ? VEC<T> : Fragments::ALIGNED, ROW = D + PADDING;
    // Whether the waves of a warpgroup multiply together, on Hopper.
    static constexpr bool WARPGROUPS = is_warpgroup_matrix<T, D>() && GRADIENTS > 0;
    struct PaddedRows {
        using Element = T;
        static constexpr int VECS = D / VEC<T>, PITCH = ROW;
        static HIPVIT_DEVICE u32 at(u32 row, u32 column) { return row * ROW + column; }
        static HIPVIT_DEVICE u32 shifted(u32 at, u32 column) { return at + column; }
    };
    template <bool SWIZZLED, class = void> struct SelectRows {
        using Type = PaddedRows;
    };
    template <class Unused> struct SelectRows<true, Unused> {
        using Type = LdsRows<T, D>;
    };
    // The layout of a tile that is not transposed.
    using Rows = typename SelectRows<WARPGROUPS>::Type;
    // Whether tiles are stored transposed too. f32 fragments are loaded by rows no slower than otherwise.
    static constexpr bool TRANSPOSED = GRADIENTS > 0 && !Fragments::ROWS_LOAD && sizeof(T) == 2;

    static HIPVIT_DEVICE constexpr int column(int tile) { return tile + Fragments::ALIGNED; } // elements between channels
    // What the rows of a transposed tile are XORed with: four threads that store a row, of 32 channels, use different banks.
    static HIPVIT_DEVICE constexpr u32 swizzle(int tile, u32 channel) { return tile >= 32 ? channel / 16 % 2 * 16 : 0; }
    // A vec128 of a row, which may be aligned to 8 bytes only.
    static HIPVIT_DEVICE void store(T *to, const Vec<T> &vec) {
        if constexpr (ROW % VEC<T> == 0) {
            *reinterpret_cast<Vec128 *>(to) = vec.whole;
        } else {
#pragma unroll
            for (int i = 0; i < 2; ++i)
                reinterpret_cast<Vec64 *>(to)[i] = {{vec.whole.word[2 * i], vec.whole.word[2 * i + 1]}};
        }
    }
    static HIPVIT_DEVICE Vec128 load(const T *from) {
        if constexpr (ROW % VEC<T> == 0) {
            return *reinterpret_cast<const Vec128 *>(from);
        } else {
            const Vec64 *const half = reinterpret_cast<const Vec64 *>(from);
            return {{half[0].word[0], half[0].word[1], half[1].word[0], half[1].word[1]}};
        }
    }
    // Elements of both operands of a tile in LDS, and of its transposed operands.
    static HIPVIT_DEVICE constexpr int of_tile(int tile) {
        return 2 * tile * Rows::PITCH + (TRANSPOSED ? GRADIENTS * D * column(tile) : 0);
    }
    // Elements of both operands of the rows that a block holds, or of the rows that go through LDS at once.
    static HIPVIT_DEVICE constexpr int of_block(BackwardConfig c) { return (c.registers ? 1 : 2 * c.groups) * c.waves * 16 * ROW; }
    static HIPVIT_DEVICE constexpr int elements(BackwardConfig c) {
        const int tile = c.stages * of_tile(c.tile), block = of_block(c);
        return !c.registers ? tile + block : tile > block ? tile : block;
    }
    static HIPVIT_DEVICE constexpr int bytes(BackwardConfig c) { return elements(c) * int(sizeof(T)) + c.stages * c.tile * 8; }
};

template <class T, int D, int GRADIENTS> HIPVIT_DEVICE constexpr BackwardConfig backward_config() {
    using Layout = BackwardLayout<T, D, GRADIENTS>;
    constexpr int FRAGMENTS = 2 * (D / 16) * int(sizeof(typename Mma<T>::Y)) / 4;
    constexpr int ACCUMULATORS = GRADIENTS * (D / 16) * Mma<T>::VALUES;
    // As in attention, a wave uses a fragment from LDS twice where it has the registers. REGISTERS bounds those of the rows of a block and
    // their gradients, PREFETCHED the channels of gradients with which a tile is prefetched: more would spill, or cost a wave.
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
    constexpr int GROUPS = sizeof(T) == 2 && GRADIENTS > 0 && GRADIENTS * D < 256 ? 2 : 1, REGISTERS = 256, PREFETCHED = 127;
#elif HIPVIT_AMD
    constexpr int GROUPS = 1, REGISTERS = WAVE == 64 ? 160 : 128, PREFETCHED = 128;
#else
    // On an H100, two groups take 0.93 to 1.03 of the time of one.
    constexpr int GROUPS = 1, REGISTERS = 128, PREFETCHED = 0;
#endif
#if HIPVIT_AMD
    constexpr int LDS = 65536, LARGEST_TILE = 32;
#else
    constexpr int LDS = 49152, LARGEST_TILE = PLAIN<T> ? 32 : 64;
#endif
    constexpr bool PREFETCHES = !PLAIN<T> && sizeof(T) == 2 && GRADIENTS > 0 && GRADIENTS * D <= PREFETCHED;
    constexpr int STAGES = ASYNC_COPIES && !PLAIN<T> && sizeof(T) == 2 && GRADIENTS > 0 && !Layout::TRANSPOSED ? 2 : 1;
    constexpr bool KEEPS = GRADIENTS > 0 && GROUPS * (FRAGMENTS + ACCUMULATORS) <= REGISTERS;
    // Two blocks share the LDS if their rows are in registers. NVIDIA's LDS is larger than a block may have.
    constexpr int MOST = KEEPS && STAGES == 1 ? LDS / 2 : LDS;
    for (int waves = 4; waves > 1; waves /= 2) {
        for (int tile = LARGEST_TILE; tile >= 16; tile /= 2) {
            const BackwardConfig config{waves, GROUPS, tile, KEEPS, PREFETCHES, STAGES};
            if (Layout::bytes(config) <= MOST) return config;
        }
    }
    return {1, GROUPS, 16, KEEPS, PREFETCHES, STAGES};
}

// Blocks per multiprocessor of NVIDIA that a kernel is compiled for at least, which bounds its registers; 0: no bound. On an H100, with 197
// tokens, four blocks take 0.89 of the time of three for queries, and 1.16 for keys and values, whose kernel then spills.
// Warpgroups need more registers. Tiles of 64 are slower with 197 tokens, but gain more with more. µs of keys and values, then of queries, with heads of 64 channels (H200, CUDA 13, bf16):
//
//                                   [64, 12, 197, 64]   [8, 16, 577, 64]   [8, 16, 1024, 64]
//   waves alone, 3 and 4 blocks         104.0    71.1       116.5   79.1       275.3   184.5
//   tiles of 32, 3 and 4 blocks         100.2    64.6       108.9   67.5       276.4   158.1
//   tiles of 64, 2 and 3 blocks         104.6    67.5        88.5   66.8       238.9   146.7
template <class T, int D, int GRADIENTS> HIPVIT_DEVICE constexpr int backward_blocks() {
    if (is_warpgroup_matrix<T, D>()) return GRADIENTS == 1 ? 3 : 2;
    return D > 64 ? 0 : GRADIENTS == 1 ? 4 : 3;
}

// Waves per SIMD that a kernel without a bias is compiled for at least; 0: no bound. On CDNA 2 and 3 clang would take registers that cost a
// wave.
template <class T, int D> HIPVIT_DEVICE constexpr int backward_min_waves() {
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
    if (sizeof(T) == 2 && D <= 64) return 3;
#endif
    return 0;
}

} // namespace hipvit
