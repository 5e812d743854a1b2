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

    HIPVIT_DEVICE void run(const Args &args) {
        this->start_tiles();
        this->load_rows();
        Gradient d_q = {};
        this->for_each_tile([&](u32 start) {
#pragma unroll 1
            for (int t = 0; t < TILE / 16 && start + t * 16 < a.keys; ++t) {
                if (this->is_hidden(start + t * 16)) continue;
                typename Base::Scores p, d_s;
                this->probabilities(p, d_s, start, t);
                this->accumulate_a(d_q, d_s, t);
            }
        });
        if (args.partial) {
            store_partial(d_q, args.partial);
        } else {
            this->store(d_q, a.scale, args.dq, a.q_image, a.q_token);
        }
    }

    HIPVIT_DEVICE void store_partial(const Gradient &gradient, float *partial) const {
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
