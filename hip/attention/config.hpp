// The tile configuration of attention, by element type, head size and architecture.
#pragma once
#include "warpgroup_mma.hpp"

namespace hipvit {

struct TileConfig {
    int waves;      // of a block
    int groups;     // of 16 queries per wave
    int keys;       // of a tile
    int stages;     // tiles in LDS that are copied asynchronously; 0: tiles are copied through registers
    int min_blocks; // that a multiprocessor holds at once, which bounds their registers; 0: no bound
};

// Whether the block of cdna.hpp is used: on CDNA 2 and later, for 16-bit types.
template <class T> HIPVIT_DEVICE constexpr bool uses_cdna_block() {
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
    return sizeof(T) == 2;
#else
    return false;
#endif
}

// On CDNA 2 and later eight waves share a tile, and each has one group: so few registers that a SIMD holds six waves. Two groups would load
// each fragment from LDS once for both, but LDS is not the bound. 64 keys at once halve the waits of 32. Predicted for ViT-B, batch 256, f16
// on an MI300X (ci/predict, clang 19; not measured on a card), in µs:
//
//                            LDS    VALU    occupancy    matrix work / useful    time
//   {4, 2, 32}, staged.hpp  49.0   106.2            3                    1.48   161.7
//   {4, 2, 32}, cdna.hpp    22.3    62.6            4                    1.12    81.0
//   {8, 1, 64}, cdna.hpp    33.7    74.6            6                    1.12    74.6
//
// On NVIDIA smaller blocks are faster for the tokens of most models, and two groups for long sequences. µs for heads of 64 channels (H100,
// CUDA 13, bf16):
//
//                        [64, 12, 197, 64]   [64, 16, 257, 64]   [8, 16, 1024, 64]   [16, 16, 4096, 64]
//   {4, 1, 64, 3, 4}                  51.6                98.7               130.3                 4015
//   {8, 1, 64, 3, 2}                  53.9               112.0               134.3                 4061
//   {4, 2, 64, 3, 2}                  59.0               121.7               120.8                 3382
//
// A program of a pattern that defines HIPVIT_TILE has that tile instead: waves << 24 | queries << 12 | keys, as in the module global
// attention_pattern_tiles_T_block. `hipvit tune` measures such programs (src/kernels/pattern_attention/tile.rs lists their tiles).
template <class T, int D> HIPVIT_DEVICE constexpr TileConfig tile_config() {
#ifdef HIPVIT_TILE
    constexpr int WAVES = HIPVIT_TILE >> 24, GROUPS = (HIPVIT_TILE >> 12 & 0xfff) / (16 * WAVES), KEYS = HIPVIT_TILE & 0xfff;
    if (uses_cdna_block<T>() || !ASYNC_COPIES || PLAIN<T>) return {WAVES, GROUPS, KEYS, 0, 0};
    // As many stages as fit the LDS of a block, and as few registers as the blocks above have at their number of waves.
    constexpr int STAGES = (48 << 10) / (2 * KEYS * LdsRows<T, D>::PITCH * int(sizeof(T)));
    return {WAVES, GROUPS, KEYS, STAGES < 4 ? STAGES : 4, (D <= 64 ? 16 : 8) / (WAVES * GROUPS)};
#endif
    if (uses_cdna_block<T>()) return {8, 1, 64, 0, 0};
    if (!ASYNC_COPIES || PLAIN<T>) return {4, 1, 32, 0, 0};
    return D <= 32   ? TileConfig{4, 1, 64, 3, 5}
           : D <= 64 ? TileConfig{4, 1, 64, 3, 4}
           : D <= 80 ? TileConfig{6, 1, 64, 2, 2}
           : D <= 96 ? TileConfig{4, 1, 32, 3, 3}
                     : TileConfig{4, 1, 48, 2, 2};
}

// Whether the waves of a warpgroup multiply together, on Hopper.
template <class T, int D> HIPVIT_DEVICE constexpr bool uses_warpgroups() {
    return is_warpgroup_matrix<T, D>() && tile_config<T, D>().waves % WARPGROUP_WAVES == 0;
}

// Blocks per multiprocessor that attention is compiled for. Warpgroups need the registers of three blocks with rows of a bias, and of four with
// scores or addends of a pattern.
template <class T, int D, class Policy> HIPVIT_DEVICE constexpr int min_blocks() {
    constexpr int BLOCKS = tile_config<T, D>().min_blocks;
    constexpr int MOST = Policy::SCORES || Policy::ADDS ? 4 : 3;
    return uses_warpgroups<T, D>() && Policy::HAS_BIAS && BLOCKS > MOST ? MOST : BLOCKS;
}

template <class Policy> HIPVIT_DEVICE constexpr bool is_plain() { return !Policy::HAS_BIAS && !Policy::ROTATES && !Policy::STATISTICS; }

// Waves per SIMD that attention is compiled for at least; 0: no bound. On CDNA 2 and later clang would take registers that cost a block of a
// compute unit. With rotation of heads of more than 64 channels it would spill.
template <class T, int D, class Policy> HIPVIT_DEVICE constexpr int min_waves() {
    if (!uses_cdna_block<T>() || (Policy::ROTATES && D > 64)) return 0;
    return is_plain<Policy>() && D <= 64 ? 6 : 4;
}

} // namespace hipvit
