// The block of attention that takes 16 queries per wave, or two groups of 16, by the tile configuration.
#pragma once
#include "attention/async.hpp"
#include "attention/cdna.hpp"
#include "attention/staged.hpp"
#include "attention/warpgroup.hpp"

namespace hipvit {

enum class BlockKind { STAGED, ASYNC, CDNA, WARPGROUP };

template <class T, int D> HIPVIT_DEVICE constexpr BlockKind block_kind() {
    if (uses_cdna_block<T>()) return BlockKind::CDNA;
    constexpr TileConfig CONFIG = tile_config<T, D>();
    if (CONFIG.stages == 0) return BlockKind::STAGED;
    return uses_warpgroups<T, D>() ? BlockKind::WARPGROUP : BlockKind::ASYNC;
}

template <BlockKind KIND, class T, int D, class Policy> struct SelectBlock {
    using Type = StagedAttention<T, D, Policy>;
};
template <class T, int D, class Policy> struct SelectBlock<BlockKind::ASYNC, T, D, Policy> {
    using Type = AsyncAttention<T, D, Policy>;
};
template <class T, int D, class Policy> struct SelectBlock<BlockKind::CDNA, T, D, Policy> {
    using Type = CdnaAttention<T, D, Policy>;
};
template <class T, int D, class Policy> struct SelectBlock<BlockKind::WARPGROUP, T, D, Policy> {
    using Type = WarpgroupAttention<T, D, Policy>;
};
template <class T, int D, class Policy> using Block = typename SelectBlock<block_kind<T, D>(), T, D, Policy>::Type;

} // namespace hipvit
