// The block of attention that takes 16 queries per wave, or two groups of 16, by the tile configuration.
#pragma once
#include "attention/async.hpp"
#include "attention/cdna.hpp"
#include "attention/staged.hpp"

namespace hipvit {

template <bool ASYNC, bool CDNA, class T, int D, class Policy> struct SelectBlock {
    using Type = StagedAttention<T, D, Policy>;
};
template <class T, int D, class Policy> struct SelectBlock<true, false, T, D, Policy> {
    using Type = AsyncAttention<T, D, Policy>;
};
template <class T, int D, class Policy> struct SelectBlock<false, true, T, D, Policy> {
    using Type = CdnaAttention<T, D, Policy>;
};
template <class T, int D, class Policy>
using Block = typename SelectBlock<(tile_config<T, D>().stages > 0), uses_cdna_block<T>(), T, D, Policy>::Type;

} // namespace hipvit
