// The gradient of queries: a block holds queries of one head of one image, and passes over the keys.
//
//   dQ = scale · dS · K
//
// If all images share the queries, each image's gradient is written in f32; attention_backward_sum adds them up.
#pragma once
#include "attention/backward.hpp"

namespace hipvit {

template <class T, int D, class Policy> struct AttentionBackwardQ : AttentionBackward<T, D, Policy, false, 1> {
    using Base = AttentionBackward<T, D, Policy, false, 1>;
    using Args = AttentionBackwardQArgs;
    using Base::a, Base::TILE, Base::GROUPS;
    using typename Base::Fragments, typename Base::Gradient;

    static HIPVIT_DEVICE u32 blocks_per_head(const AttentionBackwardOperands &a) { return (a.queries + Base::ROWS - 1) / Base::ROWS; }

    HIPVIT_DEVICE AttentionBackwardQ(const Args &args, const typename Base::PolicyArgs &of_policy, Vec128 *memory, u32 image,
                                     u32 head, u32 block)
        : Base(args.operands, of_policy, memory, image, head, block * Base::ROWS) {}

    // Adds the gradient of the first N · 16 keys of a tile, by the warpgroup.
    template <int N> HIPVIT_DEVICE void add_tile(Gradient &d_q, u32 start) {
        typename Base::template TileScores<N> p, d_s;
        typename Base::template TileWeights<N> of_d_s;
        pin(d_q);
        this->template tile_probabilities<0>(p, d_s, start, [](const auto &) {});
        Base::template start_gradient<N>(d_q, of_d_s, d_s, this->lds_a());
        wait_products<0>();
        pin(of_d_s);
        pin(d_q);
    }

    HIPVIT_DEVICE void run(const Args &args) {
        this->start_tiles();
        this->load_rows();
        Gradient d_q = {};
        this->for_each_tile([&](u32 start) {
            if constexpr (Base::WARPGROUPS) {
                if (!this->shares_rows) return start + 16 >= a.keys ? add_tile<1>(d_q, start) : add_tile<TILE / 16>(d_q, start);
            }
            this->for_each_part(start, [&](int t) {
                typename Base::Scores p, d_s;
                this->probabilities(p, d_s, start, t);
                this->accumulate_a(d_q, d_s, t);
            });
        });
        if constexpr (Base::WARPGROUPS) this->combine(d_q);
        if (args.partial) {
            store_partial(d_q, args.partial);
        } else {
            this->store(d_q, a.scale, args.dq, a.q_image, a.q_token);
        }
    }

    HIPVIT_DEVICE void store_partial(const Gradient &gradient, float *partial) const {
        if (!this->stores()) return;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
#pragma unroll
                for (int e = 0; e < Fragments::VALUES; ++e) {
                    const auto at = Fragments::of_lane(e);
                    const u32 query = this->row_at(g, at.j), channel = c * 16 + at.i;
                    if (query >= a.queries || channel >= a.head_dim) continue;
                    const u64 row = (u64(this->image) * a.queries + query) * a.heads + this->head;
                    partial[row * a.head_dim + channel] = gradient[g][c].value[e] * a.scale;
                }
            }
        }
    }
};

} // namespace hipvit
