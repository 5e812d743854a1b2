// The tile configuration of attention, by element type, head size and architecture.
#pragma once
#include "async_copy.hpp"
#include "mma.hpp"

namespace hipvit {

struct TileConfig {
    int waves;      // of a block
    int groups;     // of 16 queries per wave
    int keys;       // of a tile
    int stages;     // tiles in LDS that are copied asynchronously; 0: tiles are copied through registers
    int min_blocks; // that a multiprocessor holds at once, which bounds their registers; 0: no bound
};

// With two groups a wave uses each fragment of K and V that it loads from LDS twice: on CDNA 3 LDS delivers 16-bit fragments no faster than
// the matrix cores consume them for one group. On CDNA 1 and RDNA two groups would need too many registers. On NVIDIA smaller blocks are
// faster for the tokens of most models, and two groups for long sequences. µs for heads of 64 channels (H100, CUDA 13, bf16):
//
//                        [64, 12, 197, 64]   [64, 16, 257, 64]   [8, 16, 1024, 64]   [16, 16, 4096, 64]
//   {4, 1, 64, 3, 4}                  51.6                98.7               130.3                 4015
//   {8, 1, 64, 3, 2}                  53.9               112.0               134.3                 4061
//   {4, 2, 64, 3, 2}                  59.0               121.7               120.8                 3382
template <class T, int D> HIPVIT_DEVICE constexpr TileConfig tile_config() {
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
    return {4, sizeof(T) == 2 ? 2 : 1, 32, 0, 0};
#endif
    if (!ASYNC_COPIES || PLAIN<T>) return {4, 1, 32, 0, 0};
    return D <= 32   ? TileConfig{4, 1, 64, 3, 5}
           : D <= 64 ? TileConfig{4, 1, 64, 3, 4}
           : D <= 80 ? TileConfig{6, 1, 64, 2, 2}
           : D <= 96 ? TileConfig{4, 1, 32, 3, 3}
                     : TileConfig{4, 1, 48, 2, 2};
}

// Waves per SIMD that attention with rotation is compiled for at least; 0: no bound. On CDNA 2 and 3 clang would take registers for
// the rotation that cost a wave.
template <class T, int D> HIPVIT_DEVICE constexpr int min_waves_with_rotation() {
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
    if (sizeof(T) == 2) return D <= 64 ? 3 : 2;
#endif
    return 0;
}

} // namespace hipvit
