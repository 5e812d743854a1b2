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

    static HIPVIT_DEVICE u32 blocks_per_head(const AttentionBackwardOperands &a) { return (a.keys + Base::ROWS - 1) / Base::ROWS; }

    HIPVIT_DEVICE AttentionBackwardKv(const Args &args, const typename Base::PolicyArgs &of_policy, Vec128 *memory, u32 image,
                                     u32 head, u32 block)
        : Base(args.operands, of_policy, memory, image, head, block * Base::ROWS) {}

    HIPVIT_DEVICE void run(const Args &args) {
        this->start_tiles();
        this->load_rows();
        typename Base::Gradient d_k = {}, d_v = {};
        this->for_each_tile([&](u32 start) {
#pragma unroll 1
            for (int t = 0; t < TILE / 16 && start + t * 16 < a.queries; ++t) {
                if (this->is_hidden(start + t * 16)) continue;
                typename Base::Scores p, d_s;
                this->probabilities(p, d_s, start, t);
                this->accumulate_b(d_v, p, t);
                this->accumulate_a(d_k, d_s, t);
            }
        });
        this->store(d_k, a.scale, args.dk, a.k_image, a.k_token);
        this->store(d_v, 1.0f, args.dv, a.v_image, a.v_token);
    }
};

} // namespace hipvit
