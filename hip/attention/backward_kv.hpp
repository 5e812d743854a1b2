// The gradients of keys and values: a block holds keys of one head of one image, and passes over the queries.
//
//   dK = scale · dSᵀ · Q    dV = Pᵀ · dy
#pragma once
#include "attention/backward.hpp"

namespace hipvit {

template <class T, int D, class Policy> struct AttentionBackwardKv : AttentionBackward<T, D, Policy, true, 2> {
    using Base = AttentionBackward<T, D, Policy, true, 2>;
    using Args = AttentionBackwardKvArgs;
    using Base::a, Base::TILE;
    using typename Base::Gradient;

    static HIPVIT_DEVICE u32 blocks_per_head(const AttentionBackwardOperands &a) { return (a.keys + Base::ROWS - 1) / Base::ROWS; }

    HIPVIT_DEVICE AttentionBackwardKv(const Args &args, const typename Base::PolicyArgs &of_policy, Vec128 *memory, u32 image,
                                     u32 head, u32 block)
        : Base(args.operands, of_policy, memory, image, head, block * Base::ROWS) {}

    // Adds the gradients of the first N · 16 queries of a tile, by the warpgroup.
    template <int N> HIPVIT_DEVICE void add_tile(Gradient &d_k, Gradient &d_v, u32 start) {
        typename Base::template TileScores<N> p, d_s;
        typename Base::template TileWeights<N> of_p, of_d_s;
        pin(d_k);
        pin(d_v);
        // dV is multiplied while dS is computed.
        this->template tile_probabilities<1>(p, d_s, start, [&](const auto &p) { Base::template start_gradient<N>(d_v, of_p, p, this->lds_b()); });
        Base::template start_gradient<N>(d_k, of_d_s, d_s, this->lds_a());
        wait_products<0>();
        pin(of_p);
        pin(of_d_s);
        pin(d_k);
        pin(d_v);
    }

    HIPVIT_DEVICE void run(const Args &args) {
        this->start_tiles();
        this->load_rows();
        Gradient d_k = {}, d_v = {};
        this->for_each_tile([&](u32 start) {
            if constexpr (Base::WARPGROUPS) {
                if (!this->shares_rows) return start + 16 >= a.queries ? add_tile<1>(d_k, d_v, start) : add_tile<TILE / 16>(d_k, d_v, start);
            }
            this->for_each_part(start, [&](int t) {
                typename Base::Scores p, d_s;
                this->probabilities(p, d_s, start, t);
                this->accumulate_b(d_v, p, t);
                this->accumulate_a(d_k, d_s, t);
            });
        });
        if constexpr (Base::WARPGROUPS) {
            this->combine(d_k);
            this->combine(d_v);
        }
        this->store(d_k, a.scale, args.dk, a.k_image, a.k_token);
        this->store(d_v, 1.0f, args.dv, a.v_image, a.v_token);
    }
};

} // namespace hipvit
