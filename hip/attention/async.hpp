// Attention that copies tiles of K and V to LDS asynchronously, into a ring of stages.
//
// LDS: stages of a tile of K, then one of V, with the layout LdsRows (async_copy.hpp). Q and the output go through stages too, 16 rows
//   per wave and group. Only the tiles need barriers: a wave copies its own queries in, and its own output out.
#pragma once
#include "attention/core.hpp"
#include "attention/policy.hpp"

namespace hipvit {

template <class T, int D, class Policy> struct AsyncAttention : Attention<T, D, Policy> {
    using Base = Attention<T, D, Policy>;
    using typename Base::Scores, typename Base::Tile;
    using Base::a, Base::policy, Base::WAVES, Base::THREADS, Base::GROUPS, Base::KEYS, Base::lds, Base::q_fragment, Base::acc_o,
        Base::key_end;
    using Rows = LdsRows<T, D>;

    static constexpr int STAGES = Base::CONFIG.stages;
    static constexpr int V_AT = KEYS * Rows::PITCH, STAGE = 2 * V_AT; // elements of a stage
    static constexpr int LDS_VECS = STAGES * STAGE / VEC<T>;
    static constexpr int SLOTS = 2 * KEYS / 16;               // of 16 rows in a stage
    static constexpr int Q_STAGES = (GROUPS * WAVES + SLOTS - 1) / SLOTS;
    static_assert(Q_STAGES < STAGES);

    using CopyTile = AsyncCopy<Rows, KEYS, THREADS>;
    using CopyWave = AsyncCopy<Rows, 16, WAVE>;

    // The tile that is copied next: its first key, and the first elements that this thread copies.
    u32 next_key;
    const T *next_k, *next_v;
    int stage = 0;                  // of the tile that is multiplied
    const u32 k_element, v_element; // that the lane addresses in a fragment; Q has that of V

    HIPVIT_DEVICE AsyncAttention(const AttentionArgs &a, Vec128 *memory, u32 image, u32 head, u32 first_query,
                                 const Policy &policy)
        : Base(a, memory, image, head, first_query, policy), next_key(this->tile_from(this->key_begin)),
          k_element(opaque(Tile::template x_element<Rows>())), v_element(opaque(Tile::template x_rows_element<Rows>())) {
        const CopyTile copy(thread_index());
        next_k = this->k + u64(next_key + copy.row) * a.k_token + copy.column;
        next_v = this->v + u64(next_key + copy.row) * a.v_token + copy.column;
    }

    static HIPVIT_DEVICE int next(int stage) { return stage == STAGES - 1 ? 0 : stage + 1; }
    static HIPVIT_DEVICE int previous(int stage) { return stage == 0 ? STAGES - 1 : stage - 1; }
    HIPVIT_DEVICE T *stage_at(int index) const { return lds + index * STAGE; }
    // The wave's rows of a group of queries or of the output, in stages from `first` on.
    HIPVIT_DEVICE T *wave_rows(int first, int group) const {
        const int slot = group * WAVES + wave_index(), index = first + slot / SLOTS;
        return stage_at(index < STAGES ? index : index - STAGES) + slot % SLOTS * 16 * Rows::PITCH;
    }

    // Starts to copy the next tile, if there is one, to a stage.
    HIPVIT_DEVICE void copy_next(int index) {
        if (next_key < key_end) {
            T *const to = stage_at(index);
            const CopyTile copy(opaque(thread_index()));
            const u32 rows = a.keys - next_key;
            copy.to_lds(to, next_k, a.k_token, rows, a.head_dim, this->vector_k);
            copy.to_lds(to + V_AT, next_v, a.v_token, rows, a.head_dim, this->vector_v);
            if constexpr (Policy::MASKS) {
                next_key = this->tile_from(next_key + KEYS);
                next_k = this->k + u64(next_key + copy.row) * a.k_token + copy.column;
                next_v = this->v + u64(next_key + copy.row) * a.v_token + copy.column;
            } else {
                next_key += KEYS, next_k += u64(a.k_token) * KEYS, next_v += u64(a.v_token) * KEYS;
            }
        }
        end_copies();
    }

    HIPVIT_DEVICE auto load_k() const {
        return [this](int t, int c) {
            return Tile::load(stage_at(stage) + Rows::shifted(k_element, c * 16) + t * 16 * Rows::PITCH);
        };
    }
    HIPVIT_DEVICE auto load_v() const {
        return [this](int t, int c) {
            return Tile::load_transposed(stage_at(stage) + V_AT + Rows::shifted(v_element, c * 16) + t * 16 * Rows::PITCH);
        };
    }

    // S of a whole tile, in the order in which the fewest instructions wait for the previous one.
    HIPVIT_DEVICE void qk_tile(Scores &acc_s) const {
        const auto load = load_k();
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) acc_s[g][t] = {};
        }
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                const auto fragment = load(t, c);
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) Tile::multiply(acc_s[g][t], fragment, q_fragment[g][c]);
            }
        }
    }

    // Multiplies the tile that begins at key `start`. WHOLE: every query sees all its keys; otherwise groups of 16 keys beyond the last
    // one are skipped.
    template <bool WHOLE> HIPVIT_DEVICE void process_tile(u32 start) {
        const u32 keys = WHOLE || key_end - start > KEYS ? KEYS : key_end - start;
        Scores acc_s;
        float subtrahend[Base::COLUMNS];
        if constexpr (WHOLE) {
            qk_tile(acc_s);
            if constexpr (Policy::HAS_BIAS) this->add_bias(acc_s, start, KEYS);
        } else {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                if (t * 16 >= keys) break;
                this->qk(acc_s, t, load_k());
            }
            this->mask(acc_s, start, keys);
        }
        this->update_softmax(acc_s, keys, subtrahend);
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
            if (t * 16 >= keys) break;
            typename Base::Probabilities p;
            this->probabilities(p, acc_s, t, subtrahend);
            this->pv(p, t, load_v());
        }
    }

    // Calls work(start, whole) for each tile while it is in LDS; whole: every query sees all its keys. Calls publish() before each barrier that
    // makes stores to LDS visible: products of warpgroups need a fence there. PTX does not promise that they see asynchronous copies without
    // it, but CUTLASS (sm90_mma_multistage_gmma_ss.hpp) and Triton rely on it, and it would wait for the loads of addends.
    template <class Publish, class Work> HIPVIT_DEVICE void for_each_tile(const Publish &publish, const Work &work) {
        const bool maskless = (Policy::HAS_BIAS || this->scale_log2 > 0.0f) && !a.visible.key_mask;
        for (u32 start = this->tile_from(this->key_begin); start < key_end; start = this->tile_from(start + KEYS)) {
            wait_copies<STAGES - 2>();
            if (!this->vector_k || !this->vector_v) publish();
            barrier(); // the tile is in LDS, and the previous one, or the queries, have been read
            copy_next(previous(stage));
            if constexpr (Policy::ROTATES) {
                rotate<KEYS, THREADS>(stage_at(stage), thread_index(), start, a.keys);
                publish();
                barrier();
            }
            work(start, maskless && policy.is_visible(start / KEYS) && start >= this->common_begin && start + KEYS <= this->common_end);
            stage = next(stage);
        }
    }

    HIPVIT_DEVICE void process_tiles() {
        const auto publish = [] {};
        // A wave that has no query copies its part.
        if (this->query_at(0, 0) >= a.queries) return for_each_tile(publish, [](u32, bool) {});
        for_each_tile(publish, [&](u32 start, bool whole) {
            if (whole) {
                process_tile<true>(start);
            } else {
                process_tile<false>(start);
            }
        });
    }

    // Rotates `rows` in LDS, of COUNT tokens from token `first` on; tokens from `tokens` on do not exist. Called by CALLERS threads.
    template <int COUNT, int CALLERS> HIPVIT_DEVICE void rotate(T *rows, u32 thread, u32 first, u32 tokens) const {
        policy.template rotate_rows<D, COUNT, CALLERS>(thread, first, tokens, a.head_dim,
                                                       [rows](u32 row, u32 column) { return rows + Rows::at(row, column); });
    }

    // Loads Q to registers through the last stages, while the first tiles are copied to the others.
    HIPVIT_DEVICE void load_q() {
        constexpr int Q_STAGE = STAGES - Q_STAGES;
        const CopyWave copy(lane_index());
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            const u32 query = this->query_at(g, 0);
            copy.to_lds(wave_rows(Q_STAGE, g), this->q + u64(query + copy.row) * a.q_token + copy.column, a.q_token,
                        query < a.queries ? a.queries - query : 0, a.head_dim, this->vector_q);
        }
        end_copies();
#pragma unroll
        for (int s = 0; s < Q_STAGE; ++s) copy_next(s);
        wait_copies<Q_STAGE>();
        wave_barrier();
        if constexpr (Policy::ROTATES) {
            if (policy.rotates_queries) {
#pragma unroll
                for (int g = 0; g < GROUPS; ++g)
                    rotate<16, WAVE>(wave_rows(Q_STAGE, g), lane_index(), this->query_at(g, 0), a.queries);
                wave_barrier();
            }
        }
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c)
                q_fragment[g][c] = Tile::load(wave_rows(Q_STAGE, g) + Rows::shifted(v_element, c * 16));
        }
        if constexpr (Q_STAGES > 1) {
            barrier(); // the queries have been read
#pragma unroll
            for (int s = Q_STAGE; s < STAGES - 1; ++s) copy_next(s);
        }
    }

    // Stores O / row_sum of a group to the output through the free stages: all but that of the last tile.
    HIPVIT_DEVICE void store(int g) const {
        const u32 query = this->query_at(g, 0);
        if (query >= a.queries) return;
        T *const rows = wave_rows(stage, g);
        float inverse[Tile::COLUMNS];
        this->inverse_sums(g, inverse);
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
            typename Tile::Acc scaled = acc_o[g][c];
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) scaled.value[e] *= inverse[Tile::column(e)];
            const auto packed = Tile::as_y(scaled);
#pragma unroll
            for (int w = 0; w < Tile::VALUES / 2; ++w) {
                const auto at = Tile::of_lane(2 * w);
                *reinterpret_cast<u32 *>(rows + Rows::at(at.j, c * 16 + at.i)) = packed.word[w];
            }
        }
        wave_barrier();
        const CopyWave copy(lane_index());
        const u64 first = this->out_offset() + u64(query + copy.row) * a.out_token + copy.column;
        if (this->writes_float8()) {
            copy.from_lds_as_float8((u8 *)a.out + first, rows, a.out_token, a.queries - query, a.head_dim,
                                    this->is_vector_out(), a.float8_factor);
        } else {
            copy.from_lds((T *)a.out + first, rows, a.out_token, a.queries - query, a.head_dim, this->is_vector_out());
        }
    }

    HIPVIT_DEVICE void run() {
        load_q();
        process_tiles();
        finish();
    }

    // Stores the results of the wave's queries.
    HIPVIT_DEVICE void finish() const {
        if (this->query_at(0, 0) >= a.queries) return;
        if constexpr (Policy::STATISTICS) {
            this->store_statistics();
            if (!a.out) return;
        }
        if constexpr (Policy::LOG_SUM_EXP) {
            if (policy.sums) this->store_log_sum_exp(policy.sums);
        }
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) store(g);
    }
};

} // namespace hipvit
