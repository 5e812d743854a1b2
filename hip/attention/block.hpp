// The block of attention that takes 16 queries per wave, or two groups of 16, by the tile configuration.
#pragma once
#include "attention/async.hpp"
#include "attention/staged.hpp"

namespace hipvit {

template <bool ASYNC, class T, int D, class Policy> struct SelectBlock {
    using Type = StagedAttention<T, D, Policy>;
};
template <class T, int D, class Policy> struct SelectBlock<true, T, D, Policy> {
    using Type = AsyncAttention<T, D, Policy>;
};
template <class T, int D, class Policy> using Block = typename SelectBlock<(tile_config<T, D>().stages > 0), T, D, Policy>::Type;

} // namespace hipvit
