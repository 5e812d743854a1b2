// The gradient of a bias, or of what else a policy differentiates by: the sum of dS over the images. A block takes a tile of queries and a
// tile of keys of one head, and passes over a chunk of the images in their order. If there are several chunks, their sums are written in
// f32; attention_backward_sum adds them up.
#pragma once
#include "attention/backward.hpp"

namespace hipvit {

template <class T, int D, class Policy> struct AttentionBackwardBias {
    using Args = AttentionBackwardBiasArgs;
    using PolicyArgs = typename Policy::Args;
    // The block's queries and keys in one image.
    using Tile = AttentionBackward<T, D, Policy, false, 0>;
    using Fragments = typename Tile::Fragments;

    static constexpr int WAVES = Tile::WAVES, THREADS = Tile::THREADS, ROWS = Tile::ROWS, TILE = Tile::TILE;
    static constexpr int LDS_VECS = Tile::LDS_VECS, MIN_WAVES = 0, MIN_BLOCKS = 0;
    static_assert(!Tile::REGISTERS, "rows of several images");

    const PolicyArgs &of_policy;
    Vec128 *const memory;
    const u32 chunk, head, first_query, first_key;

    static HIPVIT_DEVICE u32 key_tiles(const AttentionBackwardOperands &a) { return (a.keys + TILE - 1) / TILE; }
    static HIPVIT_DEVICE u32 blocks_per_head(const AttentionBackwardOperands &a) {
        return (a.queries + ROWS - 1) / ROWS * key_tiles(a);
    }

    HIPVIT_DEVICE AttentionBackwardBias(const Args &args, const PolicyArgs &of_policy, Vec128 *memory, u32 chunk, u32 head,
                                        u32 block)
        : of_policy(of_policy), memory(memory), chunk(chunk), head(head), first_query(block / key_tiles(args.operands) * ROWS),
          first_key(block % key_tiles(args.operands) * TILE) {}

    HIPVIT_DEVICE void run(const Args &args) const {
        const AttentionBackwardOperands &a = args.operands;
        typename Fragments::Acc sum[TILE / 16][Tile::GROUPS] = {};
        const u32 first = chunk * args.chunk;
        if (first >= a.images) return;
        const u32 end = a.images - first < args.chunk ? a.images : first + args.chunk;
        for (u32 image = first; image < end; ++image) {
            Tile tile(a, of_policy, memory, image, head, first_query);
            // No query of the block sees a key of the tile, in no image.
            if (first_key >= tile.tiles_end() || first_key + TILE <= tile.tiles_begin()) break;
            barrier(); // the previous image has been read
            tile.load_rows();
            tile.store_tile(first_key);
            barrier();
            if (tile.idle()) continue;
#pragma unroll
            for (int t = 0; t < TILE / 16; ++t) {
                if (first_key + t * 16 >= a.keys) break;
                if (tile.is_hidden(first_key + t * 16)) continue;
                typename Tile::Scores p, d_s;
                tile.probabilities(p, d_s, first_key, t);
#pragma unroll
                for (int g = 0; g < Tile::GROUPS; ++g) {
#pragma unroll
                    for (int e = 0; e < Fragments::VALUES; ++e) sum[t][g].value[e] += d_s[g].value[e];
                }
            }
        }
        store(args, sum);
    }

    template <class Sum> HIPVIT_DEVICE void store(const Args &args, const Sum &sum) const {
        const AttentionBackwardOperands &a = args.operands;
#pragma unroll
        for (int t = 0; t < TILE / 16; ++t) {
#pragma unroll
            for (int g = 0; g < Tile::GROUPS; ++g) {
#pragma unroll
                for (int e = 0; e < Fragments::VALUES; ++e) {
                    const auto at = Fragments::of_lane(e);
                    const u32 query = first_query + Tile::wave_row() + g * 16 + at.j, key = first_key + t * 16 + at.i;
                    if (query >= a.queries || key >= a.keys) continue;
                    if (args.partial) {
                        const u64 row = (u64(chunk) * a.heads + head) * a.queries + query;
                        args.partial[row * a.keys + key] = sum[t][g].value[e];
                    } else {
                        T *const to = (T *)args.dbias + head * a.bias_head + u64(query) * a.bias_query;
                        to[key] = from_float<T>(sum[t][g].value[e]);
                    }
                }
            }
        }
    }
};

} // namespace hipvit
