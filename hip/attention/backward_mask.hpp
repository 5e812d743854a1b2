// Which tiles of attention's backward pass the mask of a policy hides: 16 × 16 scores, and the tiles of a block.
#pragma once
#include "attention/backward_policy.hpp"

namespace hipvit {

// Tiles of 16 rows in a word of SeenTiles, and their rows.
constexpr u32 SEEN_TILES = 32, SEEN_ROWS = SEEN_TILES * 16;

// Without a mask, none is hidden. Block is AttentionBackward.
template <class Policy, int GROUPS, bool HOLDS_KEYS, bool MASKS = Policy::MASKS> struct TileMask {
    template <class Block> static HIPVIT_DEVICE bool is_hidden(const Block &, u32) { return false; }
    template <class Block> static HIPVIT_DEVICE u32 next_tile(const Block &, u32 start, u32) { return start; }
    static HIPVIT_DEVICE bool is_partial(u32) { return false; }
};

template <class Policy, int GROUPS, bool HOLDS_KEYS> struct TileMask<Policy, GROUPS, HOLDS_KEYS, true> {
    // What is visible of the rows that are number `word` of the others, to each of the wave's groups and to the block.
    SeenTiles of_group[GROUPS];
    u32 any_of_block, group_word = ~0u, block_word = ~0u;

    static HIPVIT_DEVICE bool has(u32 tiles, u32 start) { return tiles >> start / 16 % SEEN_TILES & 1; }

    // Whether 16 rows of a tile, from `start` on, are hidden from the wave. Loads what is_partial needs.
    template <class Block> HIPVIT_DEVICE bool is_hidden(const Block &block, u32 start) {
        const u32 word = start / SEEN_ROWS;
        if (word != group_word) {
            group_word = word;
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                const u32 row = block.row_at(g, 0);
                of_group[g] = row < block.rows ? block.policy.template seen<HOLDS_KEYS>(row / 16, word) : SeenTiles{0, ~0u};
            }
        }
        u32 any = 0;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) any |= of_group[g].any;
        return !has(any, start);
    }
    // Whether a part of 16 rows of a tile, from `start` on, is hidden from the wave.
    HIPVIT_DEVICE bool is_partial(u32 start) const {
        u32 all = ~0u;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) all &= of_group[g].all;
        return !has(all, start);
    }
    // The first tile from `start` on that is not hidden from the block, or one from `end` on.
    template <class Block> HIPVIT_DEVICE u32 next_tile(const Block &block, u32 start, u32 end) {
        while (start < end) {
            const u32 word = start / SEEN_ROWS;
            if (word != block_word) {
                block_word = word, any_of_block = 0;
                for (u32 row = block.first_row; row <= block.last_row(); row += 16)
                    any_of_block |= block.policy.template seen<HOLDS_KEYS>(row / 16, word).any;
            }
            const u32 rest = any_of_block >> start / 16 % SEEN_TILES;
            if (rest) return start + trailing_zeros(rest) * 16 / Block::TILE * Block::TILE;
            start = (word + 1) * SEEN_ROWS;
        }
        return start;
    }
};

} // namespace hipvit
