// Attention that copies tiles of K and V to LDS through registers.
//
// LDS: a tile of K, then one of V, transposed where fragments of V are not loaded by rows. Q and the output go through the same LDS, a
//   group of queries at a time.
#pragma once
#include "attention/core.hpp"
#include "attention/policy.hpp"
#include "float8.hpp"
#include "staged_copy.hpp"

namespace hipvit {

template <class T, int D, class Policy> struct StagedAttention : Attention<T, D, Policy> {
    using Base = Attention<T, D, Policy>;
    using typename Base::Scores, typename Base::Tile;
    using Base::a, Base::policy, Base::THREADS, Base::GROUP, Base::GROUPS, Base::KEYS, Base::lds, Base::first_query,
        Base::q_fragment, Base::acc_o;

    // Whether the next tile is loaded while this one is multiplied, which takes registers, fewer for 16-bit types. With statistics
    // gfx1100 does not have enough for heads of 128 channels.
#if HIPVIT_AMD
    static constexpr bool PREFETCH = !PLAIN<T> && sizeof(T) == 2 && !(Policy::STATISTICS && D > 96);
#else
    static constexpr bool PREFETCH = D <= 64;
#endif

    // Rows are 16 bytes longer than their contents, so that they start in different banks.
    static constexpr int ROW = D + int(VEC<T>); // of Q, K and the output
    static constexpr bool TRANSPOSED = !Tile::ROWS_LOAD; // V
    static constexpr int V_ROW = TRANSPOSED ? KEYS + Tile::ALIGNED : ROW;
    static constexpr int KV_ELEMENTS = KEYS * ROW + (TRANSPOSED ? D : KEYS) * V_ROW;
    static constexpr int ELEMENTS = KV_ELEMENTS > GROUP * ROW ? KV_ELEMENTS : GROUP * ROW;
    static constexpr int LDS_VECS = (ELEMENTS + VEC<T> - 1) / VEC<T>;

    static constexpr int VECS_PER_ROW = D / VEC<T>;
    using StagedQ = Staged<T, D, GROUP, VECS_PER_ROW, THREADS>;
    using StagedK = Staged<T, D, KEYS, VECS_PER_ROW, THREADS>;
    // Transposed, the vec128s of a row of V are stored to the same banks: so few adjacent threads share a row, but enough to share a
    // cache line.
    using StagedV = Staged<T, D, KEYS, !TRANSPOSED ? VECS_PER_ROW : VECS_PER_ROW % 4 == 0 ? 4 : 2, THREADS>;

    T *const lds_v;
    StagedK staged_k;
    StagedV staged_v;

    HIPVIT_DEVICE StagedAttention(const AttentionArgs &a, Vec128 *memory, u32 image, u32 head, u32 first_query,
                                  const Policy &policy)
        : Base(a, memory, image, head, first_query, policy), lds_v(lds + KEYS * ROW) {}

    // The wave's rows of a group of queries in LDS.
    HIPVIT_DEVICE T *wave_rows() const { return lds + wave_index() * 16 * ROW; }

    HIPVIT_DEVICE auto write_row() const {
        return [this](int row, int column, const Vec<T> &vec) {
            *reinterpret_cast<Vec128 *>(lds + row * ROW + column) = vec.whole;
        };
    }
    HIPVIT_DEVICE auto write_v() const {
        return [this](int row, int column, const Vec<T> &vec) {
            if constexpr (TRANSPOSED) {
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) lds_v[(column + i) * V_ROW + row] = vec.element[i];
            } else {
                *reinterpret_cast<Vec128 *>(lds_v + row * V_ROW + column) = vec.whole;
            }
        };
    }

    // Rotates the rows in LDS of COUNT tokens from token `first` on; tokens from `tokens` on do not exist.
    template <int COUNT> HIPVIT_DEVICE void rotate(u32 first, u32 tokens) const {
        policy.template rotate_rows<D, COUNT, THREADS>(thread_index(), first, tokens, a.head_dim,
                                                       [this](u32 row, u32 column) { return lds + row * ROW + column; });
    }

    // Loads Q to registers through LDS, a group at a time, and prefetches the first K.
    HIPVIT_DEVICE void load_q() {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            StagedQ::copy(this->q, a.q_token, first_query + g * GROUP, a.queries, a.head_dim, this->vector_q, write_row());
            barrier();
            if constexpr (Policy::ROTATES) {
                if (policy.rotates_queries) {
                    rotate<GROUP>(first_query + g * GROUP, a.queries);
                    barrier();
                }
            }
#pragma unroll
            for (int c = 0; c < D / 16; ++c) q_fragment[g][c] = Tile::load_y(wave_rows() + c * 16, ROW);
            barrier(); // every wave has loaded its fragments
        }
        if constexpr (PREFETCH)
            staged_k.load(this->k, a.k_token, this->tile_from(this->key_begin), a.keys, a.head_dim, this->vector_k);
    }

    // Copies the tile of K that begins at key `start` to LDS.
    HIPVIT_DEVICE void load_k(u32 start) {
        if constexpr (PREFETCH) {
            staged_k.store(write_row());
        } else {
            StagedK::copy(this->k, a.k_token, start, a.keys, a.head_dim, this->vector_k, write_row());
        }
        if constexpr (Policy::ROTATES) {
            barrier();
            rotate<KEYS>(start, a.keys); // needs the registers that V is loaded to next
        }
        if constexpr (PREFETCH)
            staged_v.load(this->v, a.v_token, start, a.keys, a.head_dim, this->vector_v);
        barrier(); // K is in LDS, and the previous V has been read
    }

    // Copies the tile of V that begins at key `start` to LDS.
    HIPVIT_DEVICE void load_v(u32 start) {
        if constexpr (PREFETCH) {
            staged_v.store(write_v());
            staged_k.load(this->k, a.k_token, this->tile_from(start + KEYS), a.keys, a.head_dim, this->vector_k);
        } else {
            StagedV::copy(this->v, a.v_token, start, a.keys, a.head_dim, this->vector_v, write_v());
        }
        barrier(); // V is in LDS, and K has been read
    }

    HIPVIT_DEVICE void run() {
        load_q();
        for (u32 start = this->tile_from(this->key_begin); start < this->key_end; start = this->tile_from(start + KEYS)) {
            Scores acc_s;
            float subtrahend[Base::COLUMNS];
            load_k(start);
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t)
                this->qk(acc_s, t, [&](int t, int c) {
                    return Tile::load_x(lds + t * 16 * ROW + c * 16, ROW);
                });
            this->mask(acc_s, start, KEYS);
            this->update_softmax(acc_s, KEYS, subtrahend);
            load_v(start);
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                typename Base::Probabilities p;
                this->probabilities(p, acc_s, t, subtrahend);
                this->pv(p, t, [&](int t, int c) {
                    if constexpr (TRANSPOSED) {
                        return Tile::load_x(lds_v + c * 16 * V_ROW + t * 16, V_ROW);
                    } else {
                        return Tile::load_x_rows(lds_v + t * 16 * V_ROW + c * 16, V_ROW);
                    }
                });
            }
        }
        if constexpr (Policy::STATISTICS) {
            this->store_statistics();
            if (!a.out) return;
        }
        if constexpr (Policy::LOG_SUM_EXP) {
            if (policy.sums) this->store_log_sum_exp(policy.sums);
        }
        store();
    }

    // Stores O / row_sum to the output through LDS, a group at a time.
    HIPVIT_DEVICE void store() const {
        const u64 out = this->out_offset();
        const bool vector_out = this->is_vector_out();
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            float inverse[Tile::COLUMNS];
            this->inverse_sums(g, inverse);
            barrier(); // the LDS has been read
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    const auto at = Tile::of_lane(e);
                    wave_rows()[at.j * ROW + c * 16 + at.i] =
                        from_float<T>(acc_o[g][c].value[e] * inverse[Tile::column(e)]);
                }
            }
            barrier();
            for (int at = int(thread_index()); at < GROUP * VECS_PER_ROW; at += THREADS) {
                const u32 row = at / VECS_PER_ROW, column = at % VECS_PER_ROW * VEC<T>;
                const u32 query = first_query + g * GROUP + row;
                if (query >= a.queries || column >= a.head_dim) continue;
                const T *from = lds + row * ROW + column;
                const u64 element = out + u64(query) * a.out_token + column;
                if (this->writes_float8()) {
                    float x[VEC<T>];
                    load_vec(from, VEC<T>, true, x);
                    store_float8((u8 *)a.out + element, a.head_dim - column, vector_out, a.float8_factor, x);
                    continue;
                }
                T *to = (T *)a.out + element;
                if (vector_out) {
                    *reinterpret_cast<Vec128 *>(to) = *reinterpret_cast<const Vec128 *>(from);
                } else {
#pragma unroll
                    for (u32 i = 0; i < VEC<T>; ++i)
                        if (column + i < a.head_dim) to[i] = from[i];
                }
            }
        }
    }
};

} // namespace hipvit
