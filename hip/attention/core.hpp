// Attention of one block: its place in the batch, its scores, softmax and output rows. The blocks of staged.hpp, cdna.hpp, async.hpp and
// warpgroup.hpp build on it; they differ in how K and V reach LDS, and in who multiplies.
//
// A lane's scores S = K·Qᵀ are of Tile::COLUMNS queries per group, the columns of mma.hpp; rows are keys. P is rounded to T.
#pragma once
#include "attention.h"
#include "attention/config.hpp"
#include "key_range.hpp"
#include "online_softmax.hpp"

namespace hipvit {

// The state is in registers once everything is inlined.
template <class T, int D, class PolicyOfEntry> struct Attention {
    using Policy = PolicyOfEntry;
    using Tile = Mma<T>;

    static constexpr TileConfig CONFIG = tile_config<T, D>();
    static constexpr int WAVES = CONFIG.waves, GROUPS = CONFIG.groups, KEYS = CONFIG.keys, THREADS = WAVES * WAVE;
    static constexpr int MIN_BLOCKS = min_blocks<T, D, Policy>(), MIN_WAVES = min_waves<T, D, Policy>();
    static constexpr int GROUP = WAVES * 16; // queries of a group
    static constexpr int QUERIES = GROUPS * GROUP;
    static constexpr int COLUMNS = GROUPS * Tile::COLUMNS; // queries that a lane has scores of
    static constexpr bool LAZY = (CONFIG.stages > 0 || uses_cdna_block<T>()) && !Policy::STATISTICS;

    using Scores = typename Tile::Acc[GROUPS][KEYS / 16];
    using Probabilities = typename Tile::Y[GROUPS];

    const AttentionArgs &a;
    const Policy policy;
    T *const lds;
    const u32 image, head;
    const T *const q, *const k, *const v;
    const bool whole_vecs; // d is a multiple of a vec128
    const bool vector_q, vector_k, vector_v;
    const u32 first_query;
    u32 key_begin, key_end;       // of the tiles that the block works on
    u32 common_begin, common_end; // of the keys that every query of the block sees, by position
    bool shares_queries = false;  // all waves have the same queries, at most 16, and divide the keys; see warpgroup.hpp
    // e^(scale · s) = 2^(scale_log2 · s). The softmax multiplies scores by softmax_scale_log2 when it subtracts the maximum:
    //   STATISTICS    by 1: add_bias() has applied scale_log2, and the largest probability is 2^0
    //   HAS_BIAS      by log2(e): add_bias() has applied the scale
    //   otherwise     by scale_log2; if that is not positive, mask() does so before, and the softmax by 1
    const float scale_log2, softmax_scale_log2;

    typename Tile::Y q_fragment[GROUPS][D / 16];
    typename Tile::Acc acc_o[GROUPS][D / 16] = {};
    OnlineSoftmax<Tile, COLUMNS, LAZY, Policy::STATISTICS> softmax;

    HIPVIT_DEVICE Attention(const AttentionArgs &a, Vec128 *memory, u32 image, u32 head, u32 first_query, const Policy &policy)
        : a(a), policy(policy), lds(reinterpret_cast<T *>(memory)), image(image), head(head),
          q((const T *)a.q + image * a.q_image + u64(head) * a.head_dim),
          k((const T *)a.k + image * a.k_image + u64(head) * a.head_dim),
          v((const T *)a.v + image * a.v_image + u64(head) * a.head_dim),
          whole_vecs(a.head_dim % VEC<T> == 0), vector_q(is_vector(q, a.q_token)), vector_k(is_vector(k, a.k_token)),
          vector_v(is_vector(v, a.v_token)), first_query(first_query), scale_log2(a.scale * LOG2_E),
          softmax_scale_log2(Policy::STATISTICS ? 1.0f : Policy::HAS_BIAS ? LOG2_E : scale_log2 > 0.0f ? scale_log2 : 1.0f) {
        key_begin = common_begin = 0;
        key_end = common_end = a.keys;
        if (has_window()) {
            const u32 last_query = (first_query + QUERIES < a.queries ? first_query + QUERIES : a.queries) - 1;
            const KeyRange first(a.visible, first_query, a.keys), last(a.visible, last_query, a.keys);
            key_begin = first.first / KEYS * KEYS, key_end = last.end();
            common_begin = last.first, common_end = first.end();
        }
    }

    // Whether the visible keys depend on the query. Without asynchronous copies always: clang would pay for the distinction with
    // registers, and so with gfx1100's occupancy for heads of 80 and 128 channels.
    HIPVIT_DEVICE bool has_window() const {
        return CONFIG.stages == 0 || a.visible.left != UNBOUNDED || a.visible.right != UNBOUNDED;
    }
    // The head's first element in the output.
    HIPVIT_DEVICE u64 out_offset() const { return image * a.out_image + u64(head) * a.head_dim; }
    HIPVIT_DEVICE bool writes_float8() const { return a.float8_factor != 0.0f; }
    HIPVIT_DEVICE bool is_vector(const T *rows, u32 stride) const {
        return whole_vecs && stride % VEC<T> == 0 && aligned(rows, VEC128_BYTES);
    }
    // Whether a vec128 of the output, or its bytes of E4M3, is stored at once.
    HIPVIT_DEVICE bool is_vector_out() const {
        if (!writes_float8()) return is_vector((const T *)a.out + out_offset(), a.out_token);
        return whole_vecs && a.out_token % VEC<T> == 0 && aligned((const u8 *)a.out + out_offset(), VEC<T>);
    }
    // The index of the wave's query `j` of a group.
    HIPVIT_DEVICE u32 query_at(int group, int j) const {
        const u32 wave = uses_warpgroups<T, D>() && shares_queries ? 0 : wave_index();
        return first_query + group * GROUP + wave * 16 + j;
    }

    // A pattern's tiles are in the order in which the threads of a block have its scores. Waves with the same queries read what is stored
    // for the first one: the thread, and the number of its score of key `start`.
    HIPVIT_DEVICE u32 thread_of_scores() const {
        return uses_warpgroups<T, D>() && shares_queries ? lane_index() : thread_index();
    }
    HIPVIT_DEVICE u32 first_score(u32 start) const {
        return uses_warpgroups<T, D>() && shares_queries ? start % KEYS / 16 * Tile::VALUES : 0;
    }

    // Vec128 number `vec` of the addends to the lane's scores from key `start` on.
    HIPVIT_DEVICE Vec<T> addends_at(u32 start, u32 vec) const {
        return policy.addends_at(start / KEYS, first_score(start) / VEC<T> + vec, thread_of_scores());
    }
    // A bit of each of the lane's scores from key `start` on.
    HIPVIT_DEVICE u32 visible_scores(u32 start) const {
        if constexpr (Policy::MASKS) return policy.visible_keys(start / KEYS, thread_of_scores()) >> first_score(start);
        return ~0u;
    }

    // Calls change(score, key of the tile, column) for the lane's scores of the tile's first `keys` keys, in steps of 16.
    template <class Change> static HIPVIT_DEVICE void for_each_score(Scores &acc_s, u32 keys, const Change &change) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                if (t * 16 >= keys) break;
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e)
                    change(acc_s[g][t].value[e], u32(t * 16 + Tile::of_lane(e).i), g * Tile::COLUMNS + Tile::column(e));
                schedule_fence();
            }
        }
    }

    // S = K·Qᵀ of 16 keys of the tile. A lane then has scores of few queries.
    template <class Load> HIPVIT_DEVICE void qk(Scores &acc_s, int t, const Load &load_k) const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) acc_s[g][t] = {};
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
            const auto fragment = load_k(t, c);
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) Tile::multiply(acc_s[g][t], fragment, q_fragment[g][c]);
            if (c % 4 == 3) schedule_fence();
        }
        schedule_fence();
    }

    // The first tile from key `start` on that has a key which some query of the block sees.
    HIPVIT_DEVICE u32 tile_from(u32 start) const {
        if constexpr (Policy::MASKS) {
            while (start < key_end && policy.is_hidden(start / KEYS)) start += KEYS;
        }
        return start;
    }

    // Calls change(score, query, key) for the lane's scores of the tile's first `keys` keys. Queries and keys that do not exist
    // are replaced by the last ones. EXIST: all keys of the tile exist.
    template <bool EXIST, class Change> HIPVIT_DEVICE void for_each_place(Scores &acc_s, u32 start, u32 keys, const Change &change) const {
        u32 queries[COLUMNS];
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                const u32 query = query_at(g, Tile::of_lane(e).j);
                queries[g * Tile::COLUMNS + Tile::column(e)] = query < a.queries ? query : a.queries - 1;
            }
        }
        for_each_score(acc_s, keys, [&](float &s, u32 key, int column) {
            change(s, queries[column], EXIST || start + key < a.keys ? start + key : a.keys - 1);
        });
    }

    // Scores of a tile that a lane has.
    static constexpr int ELEMENTS_OF_LANE = GROUPS * (KEYS / 16) * Tile::VALUES;

    // Calls change(score, index) for the lane's scores of the tile's first `keys` keys, in steps of 16; the index is below
    // ELEMENTS_OF_LANE.
    template <class Change> static HIPVIT_DEVICE void for_each_element(Scores &acc_s, u32 keys, const Change &change) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                if (t * 16 >= keys) break;
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e)
                    change(acc_s[g][t].value[e], (g * (KEYS / 16) + t) * Tile::VALUES + e);
                schedule_fence();
            }
        }
    }

    // S becomes scale · S + bias, with statistics times log2(e); with a pattern, scale · S + addend or its score f(scale · S). EXIST: all keys
    // of the tile exist.
    template <bool EXIST = false> HIPVIT_DEVICE void add_bias(Scores &acc_s, u32 start, u32 keys) const {
        if constexpr (Policy::ADDS) {
            add_addends(acc_s, keys, [&](u32 vec) { return addends_at(start, vec); });
        } else if constexpr (Policy::SCORES) {
            return for_each_place<EXIST>(acc_s, start, keys, [&](float &s, u32 query, u32 key) {
                s = policy.pattern.score(s * a.scale, query, key);
            });
        } else {
            add_bias_rows<EXIST>(acc_s, start, keys);
        }
    }

    // addends(vec) is Vec128 number `vec` of those to the lane's scores.
    template <class Addends> HIPVIT_DEVICE void add_addends(Scores &acc_s, u32 keys, const Addends &addends) const {
        Vec<T> of_scores;
        for_each_element(acc_s, keys, [&](float &s, int at) {
            if (at % VEC<T> == 0) of_scores = addends(at / VEC<T>);
            s = multiply_add(s, a.scale, of_scores[at % VEC<T>]);
        });
    }

    template <bool EXIST> HIPVIT_DEVICE void add_bias_rows(Scores &acc_s, u32 start, u32 keys) const {
        if constexpr (Policy::STATISTICS) {
            if (!policy.rows) return for_each_score(acc_s, keys, [&](float &s, u32, int) { s *= scale_log2; });
        }
        const T *rows[COLUMNS];
        bias_rows(rows);
        if constexpr (EXIST && uses_cdna_block<T>()) return add_whole_bias_rows(acc_s, start, rows);
        for_each_score(acc_s, keys, [&](float &s, u32 key, int column) {
            const u32 at = EXIST || start + key < a.keys ? start + key : a.keys - 1;
            s = with_bias(s, rows[column][at]);
        });
    }

    HIPVIT_DEVICE float with_bias(float s, T bias) const {
        if constexpr (Policy::STATISTICS) return multiply_add(s, scale_log2, to_float(bias) * LOG2_E);
        return multiply_add(s, a.scale, to_float(bias));
    }

    // The biases of the lane's queries.
    HIPVIT_DEVICE void bias_rows(const T *(&rows)[COLUMNS]) const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                const u32 query = query_at(g, Tile::of_lane(e).j);
                rows[g * Tile::COLUMNS + Tile::column(e)] =
                    policy.rows + u64(query < a.queries ? query : a.queries - 1) * policy.query_stride;
            }
        }
    }

    // As add_bias_rows, on CDNA, where all keys exist: a lane's consecutive keys are loaded at once, which needs no alignment there.
    HIPVIT_DEVICE void add_whole_bias_rows(Scores &acc_s, u32 start, const T *const (&rows)[COLUMNS]) const {
        using Bits = u16 __attribute__((ext_vector_type(4), aligned(2)));
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                const Bits bias = *reinterpret_cast<const Bits *>(rows[g] + start + t * 16 + Tile::of_lane(0).i);
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    float &s = acc_s[g][t].value[e];
                    s = with_bias(s, T{bias[e]});
                }
            }
        }
    }

    // Scales the scores and adds the bias where the softmax does not, and sets those of invisible keys to −∞. By selects: a branch
    // per element would keep the compiler from scheduling across it. EXIST: all keys of the tile exist.
    template <bool EXIST = false> HIPVIT_DEVICE void mask(Scores &acc_s, u32 start, u32 keys) const {
        mask<EXIST>(acc_s, start, keys, [&] { return visible_scores(start); });
    }
    // `visible` returns what visible_scores() does.
    template <bool EXIST = false, class Visible> HIPVIT_DEVICE void mask(Scores &acc_s, u32 start, u32 keys, const Visible &visible) const {
        if constexpr (Policy::HAS_BIAS) {
            add_bias<EXIST>(acc_s, start, keys);
        } else if (!(scale_log2 > 0.0f)) {
            for_each_score(acc_s, keys, [&](float &s, u32, int) { s *= scale_log2; });
        }
        if constexpr (Policy::ADDS) {
            // The addend of a hidden key is −∞.
        } else if constexpr (Policy::MASKS) {
            // Keys that do not exist are not visible either.
            const u32 bits = visible();
            for_each_element(acc_s, keys, [&](float &s, int at) { s = bits >> at & 1 ? s : -infinity(); });
        } else if (start < common_begin || start + KEYS > common_end) {
            // Few tiles need the ranges: computed here, they take no registers elsewhere.
            KeyRange range[COLUMNS];
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    const u32 query = opaque(query_at(g, Tile::of_lane(e).j));
                    KeyRange &visible = range[g * Tile::COLUMNS + Tile::column(e)];
                    visible = KeyRange(0, a.keys);
                    if (has_window()) visible = KeyRange(a.visible, query, a.keys);
                }
            }
            for_each_score(acc_s, keys, [&](float &s, u32 key, int column) {
                s = range[column].contains(start + key) ? s : -infinity();
            });
        }
        if (a.visible.key_mask) {
            const u8 *const key_mask = a.visible.key_mask + u64(image) * a.keys;
            for_each_score(acc_s, keys, [&](float &s, u32 key, int) {
                s = key_mask[start + key < a.keys ? start + key : a.keys - 1] ? s : -infinity();
            });
        }
    }

    // Takes the scores of a tile into the softmax, and rescales O if a maximum grew.
    HIPVIT_DEVICE void update_softmax(Scores &acc_s, u32 keys, float (&subtrahend)[COLUMNS]) {
        float tile_max[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) tile_max[c] = -infinity();
        for_each_score(acc_s, keys, [&](float &s, u32, int column) { tile_max[column] = larger(tile_max[column], s); });
        softmax.update(tile_max, softmax_scale_log2, [&](const float (&factors)[COLUMNS]) {
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                for (int c = 0; c < D / 16; ++c) {
#pragma unroll
                    for (int e = 0; e < Tile::VALUES; ++e)
                        acc_o[g][c].value[e] *= factors[g * Tile::COLUMNS + Tile::column(e)];
                }
            }
        });
        softmax.subtrahends(subtrahend);
    }

    // P of 16 keys of the tile.
    HIPVIT_DEVICE void probabilities(Probabilities &p, Scores &acc_s, int t, const float (&subtrahend)[COLUMNS]) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                const int column = g * Tile::COLUMNS + Tile::column(e);
                float &s = acc_s[g][t].value[e];
                s = softmax.probability(s, softmax_scale_log2, subtrahend[column], column);
            }
            p[g] = Tile::as_y(acc_s[g][t]);
        }
        schedule_fence();
    }

    // O += Vᵀ·Pᵀ of 16 keys of the tile.
    template <class Load> HIPVIT_DEVICE void pv(const Probabilities &p, int t, const Load &load_v) {
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
            const auto fragment = load_v(t, c);
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) Tile::multiply(acc_o[g][c], fragment, p[g]);
            if (c % 4 == 3) schedule_fence();
        }
    }

    // The factors that normalise O of a group, by column.
    HIPVIT_DEVICE void inverse_sums(int g, float (&inverse)[Tile::COLUMNS]) const {
#pragma unroll
        for (int c = 0; c < Tile::COLUMNS; ++c) inverse[c] = softmax.inverse_sum(g * Tile::COLUMNS + c);
    }

    // Stores each query's ln Σ e^s, −∞ without visible keys, to `sums` of the head.
    HIPVIT_DEVICE void store_log_sum_exp(float *sums) const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int c = 0; c < Tile::COLUMNS; ++c) {
                const int at = g * Tile::COLUMNS + c;
                int e = 0; // an element of the column
                while (Tile::column(e) != c) ++e;
                const u32 query = query_at(g, Tile::of_lane(e).j);
                // All lanes take part in the sum; several store it.
                const float sum = softmax.sum(at);
                if (query < a.queries) sums[query] = LN_2 * (softmax.row_max[at] + fast_log2(sum));
            }
        }
    }

    // Stores each query's ln Σ e^s, largest probability and entropy, −Σ p · ln p = ln Σ 2^x − ln 2 · Σ 2^x · x / Σ 2^x. They are −∞, 0
    // and 0 for a query without visible keys.
    HIPVIT_DEVICE void store_statistics() const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            float inverse[Tile::COLUMNS];
            inverse_sums(g, inverse);
#pragma unroll
            for (int c = 0; c < Tile::COLUMNS; ++c) {
                const int at = g * Tile::COLUMNS + c;
                const float log2_sum = fast_log2(softmax.sum(at));
                const float weighted = Tile::template reduce_column<Sum>(softmax.row_weighted[at]);
                const float entropy = LN_2 * multiply_add(-weighted, inverse[c], log2_sum);
                int e = 0; // an element of the column
                while (Tile::column(e) != c) ++e;
                const u32 query = query_at(g, Tile::of_lane(e).j);
                if (query >= a.queries) continue;
                // Several lanes store the same.
                float *const to = policy.statistics + ((u64(image) * a.heads + head) * a.queries + query) * 3;
                to[0] = LN_2 * (softmax.row_max[at] + log2_sum);
                to[1] = inverse[c];
                to[2] = entropy < 0.0f ? 0.0f : entropy; // by rounding, or without a visible key
            }
        }
    }
};

} // namespace hipvit
