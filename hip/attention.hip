// attention: out = softmax(scale · Q·Kᵀ + bias + mask) · V in one pass over the keys, by an online softmax on matrix cores.
//
// Shapes: q, out T [B, Nq, H · d]; k, v T [B, Nk, H · d], by strides, so that packed QKV is read where it is; out may be
//   bytes, E4M3. Any Nq and Nk. attention_<D>_T takes heads of d ≤ D channels, padded to D with zeros; attention.h lists the D. Visible
//   keys: include/visibility.h. The output of a query without visible keys is 0.
// Alignment: any; vec128 access where d, the strides and the addresses allow it.
// Accumulators: f32 for S = Q·Kᵀ, the row sums and O; P is rounded to T for P·V.
// Geometry: a block takes some queries of one head of one image, 16 per wave, or two groups of 16; the module
//   global attention_<D>_T_block has the number of waves and of queries (attention.h). Grid: images × heads ×
//   ⌈Nq / queries⌉; blocks beyond that return at once. K and V go through LDS in tiles of 32 to 64 keys; Q and the output
//   go through the same LDS. attention_<D>_bias_T adds a bias [H, Nq, Nk] of T to the scores. attention_<D>_rope_T rotates
//   pairs of channels of Q and K (rope.hip) in LDS, and rounds them to T. attention_<D>_split_T, for small grids: a block takes
//   16 queries, its waves share out the keys. attention_<D>_stats_T writes statistics of the softmax beside
//   the output: f32 [B, H, Nq, 3], of the probabilities before they are rounded; it takes every mask, and a bias or none.
#include "attention.h"
#include "async_copy.hpp"
#include "float8.hpp"
#include "key_range.hpp"
#include "mma.hpp"
#include "rotate.hpp"
#include "staged_copy.hpp"

using namespace hipvit;

struct Shape {
    int waves;
    int groups; // of 16 queries per wave
    int keys;   // of a tile
    int stages; // of tiles in LDS, which are copied asynchronously; 0: through registers
    int blocks; // that a multiprocessor holds at once, which bounds their registers; 0: no bound
};

// With two groups a wave uses each fragment of K and V that it loads from LDS twice: on CDNA 3 LDS delivers 16-bit
// fragments no faster than the matrix cores consume them for one group. On CDNA 1 and RDNA two groups would need too many
// registers. On NVIDIA more resident waves are faster for the tokens of most models: heads of 64 channels with {8, 1, 64, 3, 2}
// or {4, 2, 64, 3, 0} take 188 or 204 µs for [256, 12, 197, 64], 3755 or 3363 µs for [16, 16, 4096, 64] (H200, CUDA 13.5, f16).
template <class T, int D> HIPVIT_DEVICE constexpr Shape shape_of() {
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
    return {4, sizeof(T) == 2 ? 2 : 1, 32, 0, 0};
#endif
    if (!ASYNC_COPIES || PLAIN<T>) return {4, 1, 32, 0, 0};
    return D <= 32   ? Shape{4, 1, 64, 3, 5}
           : D <= 64 ? Shape{8, 1, 64, 3, 2}
           : D <= 80 ? Shape{6, 1, 64, 2, 2}
           : D <= 96 ? Shape{4, 1, 32, 3, 3}
                     : Shape{4, 1, 48, 2, 2};
}

// What is added to a head's scores: nothing.
template <class T> struct NoBias {
    static constexpr bool PRESENT = false, ROTATED = false, STATISTICS = false;
};
template <class T> struct ScoreBias {
    static constexpr bool PRESENT = true, ROTATED = false, STATISTICS = false;
    const T *rows; // of the queries
    u32 query;     // elements between them
};
// A bias, or none if `rows` is null; and where the statistics of the first image's first head go.
template <class T> struct ScoreBiasAndStatistics : ScoreBias<T> {
    static constexpr bool STATISTICS = true;
    float *statistics;
};
// Nothing, but keys are rotated, and queries too if `of_queries`. In LDS, as a copy that is asynchronous goes past the registers:
// no more than its own pass over the tile, and one more barrier.
template <class T> struct Rotation : NoBias<T> {
    static constexpr bool ROTATED = true;
    const T *table;      // of the head
    u32 place;           // elements from one token's row of the table to the next
    u32 first_token;     // that is rotated
    bool halves, of_queries;

    HIPVIT_DEVICE Rotation(const RopeArgs &a, u32 head, u32 heads)
        : table((const T *)a.table + u64(head % a.table_heads) * a.head_dim), place(a.table_heads * a.head_dim),
          first_token(a.first), halves(a.halves), of_queries(a.heads > heads) {}

    static HIPVIT_DEVICE void rotate_pair(T &first, T &second, T cosine, T sine) {
        float a = to_float(first), b = to_float(second);
        rotate(a, b, to_float(cosine), to_float(sine));
        first = from_float<T>(a), second = from_float<T>(b);
    }

    // Rotates COUNT rows of `d` channels, from token `first` on, of which those before `tokens` exist; element (row, column)
    // is at(row, column). The work of THREADS threads.
    template <int D, int COUNT, int THREADS, class At>
    HIPVIT_DEVICE void rotate_rows(u32 thread, u32 first, u32 tokens, u32 d, const At &at) const {
        const u32 half = d / 2;
        const auto row_of = [&](u32 row, const T *&angles) {
            const u32 token = first + row;
            angles = table + u64(token - first_token) * place;
            return token >= first_token && token < tokens;
        };
        if (half % VEC<T> == 0 && aligned(table, VEC128_BYTES)) {
            constexpr u32 VECS = D / 2 / VEC<T>;
#pragma unroll 1
            for (u32 i = opaque(thread); i < COUNT * VECS; i += THREADS) { // no address is kept for the next tile
                // Halves of rows four apart are in different banks where four threads share a row.
                const u32 line = i / VECS, column = i % VECS * VEC<T>;
                const u32 row = halves ? (line & ~7u) | (line & 1) << 2 | (line >> 1 & 3) : line;
                const T *angles;
                if (column >= half || !row_of(row, angles)) continue;
                T *const low = at(row, halves ? column : 2 * column);
                T *const high = at(row, halves ? column + half : 2 * column + VEC<T>);
                const auto vec_at = [](const T *at) { return Vec<T>{*reinterpret_cast<const Vec128 *>(at)}; };
                const Vec<T> cosine = vec_at(angles + column), sine = vec_at(angles + half + column);
                Vec<T> both[2] = {vec_at(low), vec_at(high)};
                if (halves) {
#pragma unroll
                    for (u32 p = 0; p < VEC<T>; ++p)
                        rotate_pair(both[0].element[p], both[1].element[p], cosine.element[p], sine.element[p]);
                } else {
#pragma unroll
                    for (u32 p = 0; p < VEC<T>; ++p) {
                        T *const pair = both[2 * p / VEC<T>].element + 2 * p % VEC<T>;
                        rotate_pair(pair[0], pair[1], cosine.element[p], sine.element[p]);
                    }
                }
                *reinterpret_cast<Vec128 *>(low) = both[0].whole;
                *reinterpret_cast<Vec128 *>(high) = both[1].whole;
            }
        } else {
#pragma unroll 1
            for (u32 i = thread; i < COUNT * (D / 2); i += THREADS) {
                const u32 row = i / (D / 2), pair = i % (D / 2);
                const T *angles;
                if (pair >= half || !row_of(row, angles)) continue;
                T *const low = at(row, halves ? pair : 2 * pair);
                T *const high = at(row, halves ? pair + half : 2 * pair + 1);
                rotate_pair(*low, *high, angles[pair], angles[half + pair]);
            }
        }
    }
};

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;
// 2^x is 0 below; e · x is not 0 · ∞ with x no lower than this.
constexpr float LEAST_EXPONENT = -200.0f;

// A block's work. The state is registers once everything is inlined.
template <class T, int D, class Bias> struct Attention : Bias {
    using Tile = Mma<T>;

    static constexpr Shape SHAPE = shape_of<T, D>();
    static constexpr int WAVES = SHAPE.waves, GROUPS = SHAPE.groups, KEYS = SHAPE.keys, THREADS = WAVES * WAVE;
    static constexpr int GROUP = WAVES * 16; // queries of a group
    static constexpr int QUERIES = GROUPS * GROUP;
    static constexpr int COLUMNS = GROUPS * Tile::COLUMNS; // queries that a lane has scores of
    // Whether a maximum that grows little is left as it is, which saves rescaling O.
    // Statistics need the maximum itself: the largest probability is 2^0 / row_sum.
    static constexpr bool LAZY = SHAPE.stages > 0 && !Bias::STATISTICS;

    using Scores = typename Tile::Acc[GROUPS][KEYS / 16];
    using Probabilities = typename Tile::Y[GROUPS];

    const AttentionArgs &a;
    T *const lds;
    const u32 image, head;
    const T *const q, *const k, *const v;
    const bool whole_vecs; // d is a multiple of a vec128
    const bool vector_q, vector_k, vector_v;
    const u32 first_query;
    u32 first_key, end_key;     // of the tiles that the block works on
    u32 common_key, common_end; // of the keys that every query of the block sees, by position
    // e^(scale · s) = 2^(scale_log2 · s). If positive, and nothing is added, it is applied when the maximum is subtracted, as
    // softmax_scale_log2; otherwise before the maximum is taken.
    const float scale_log2, softmax_scale_log2;

    typename Tile::Y q_fragment[GROUPS][D / 16];
    typename Tile::Acc acc_o[GROUPS][D / 16] = {};
    float row_max[COLUMNS], row_sum[COLUMNS];
    float row_weighted[COLUMNS]; // Σ 2^x · x with x = s − row_max, for the entropy

    HIPVIT_DEVICE Attention(const AttentionArgs &a, Vec128 *memory, u32 image, u32 head, u32 first_query, Bias bias)
        : Bias(bias), a(a), lds(reinterpret_cast<T *>(memory)), image(image), head(head),
          q((const T *)a.q + image * a.q_image + u64(head) * a.head_dim),
          k((const T *)a.k + image * a.k_image + u64(head) * a.head_dim),
          v((const T *)a.v + image * a.v_image + u64(head) * a.head_dim),
          whole_vecs(a.head_dim % VEC<T> == 0), vector_q(is_vector(q, a.q_token)), vector_k(is_vector(k, a.k_token)),
          vector_v(is_vector(v, a.v_token)), first_query(first_query), scale_log2(a.scale * LOG2_E),
          softmax_scale_log2(!Bias::PRESENT && scale_log2 > 0.0f ? scale_log2 : 1.0f) {
        first_key = common_key = 0;
        end_key = common_end = a.keys;
        if (is_bounded()) {
            const u32 last_query = (first_query + QUERIES < a.queries ? first_query + QUERIES : a.queries) - 1;
            const KeyRange first(a.visible, first_query, a.keys), last(a.visible, last_query, a.keys);
            first_key = first.first / KEYS * KEYS, end_key = last.end();
            common_key = last.first, common_end = first.end();
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            row_max[c] = -infinity();
            row_sum[c] = 0.0f;
            if constexpr (Bias::STATISTICS) row_weighted[c] = 0.0f;
        }
    }

    // Whether the visible keys depend on the query. Clang would pay for the distinction with registers: gfx1100's occupancy
    // for heads of 80 and 128 channels.
    HIPVIT_DEVICE bool is_bounded() const {
        return SHAPE.stages == 0 || a.visible.left != UNBOUNDED || a.visible.right != UNBOUNDED;
    }
    // The head's first element of the output.
    HIPVIT_DEVICE u64 out() const { return image * a.out_image + u64(head) * a.head_dim; }
    HIPVIT_DEVICE bool is_float8() const { return a.float8_factor != 0.0f; }
    HIPVIT_DEVICE bool is_vector(const T *rows, u32 stride) const {
        return whole_vecs && stride % VEC<T> == 0 && aligned(rows, VEC128_BYTES);
    }
    // Whether a vec128 of the output, or its bytes, is stored at once.
    HIPVIT_DEVICE bool is_vector_out() const {
        if (!is_float8()) return is_vector((const T *)a.out + out(), a.out_token);
        return whole_vecs && a.out_token % VEC<T> == 0 && aligned((const u8 *)a.out + out(), VEC<T>);
    }
    // The wave's query `j` of a group.
    HIPVIT_DEVICE u32 query_of(int group, int j) const { return first_query + group * GROUP + wave_index() * 16 + j; }

    // Calls change(score, key of the tile, column) for the lane's scores of the tile's first `keys` keys, in steps of 16.
    template <class Change> static HIPVIT_DEVICE void for_each(Scores &acc_s, u32 keys, const Change &change) {
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

    // S = K·Qᵀ of 16 keys of the tile, so that a lane has scores of few queries.
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

    // S becomes scale_log2 · S + log2(e) · bias.
    HIPVIT_DEVICE void add_bias(Scores &acc_s, u32 start, u32 keys) const {
        if constexpr (Bias::STATISTICS) {
            if (!this->rows) return for_each(acc_s, keys, [&](float &s, u32, int) { s *= scale_log2; });
        }
        const T *of_column[COLUMNS];
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                const u32 query = query_of(g, Tile::of_lane(e).j);
                of_column[g * Tile::COLUMNS + Tile::column(e)] =
                    this->rows + u64(query < a.queries ? query : a.queries - 1) * this->query;
            }
        }
        for_each(acc_s, keys, [&](float &s, u32 key, int column) {
            const u32 at = start + key < a.keys ? start + key : a.keys - 1;
            s = multiply_add(s, scale_log2, to_float(of_column[column][at]) * LOG2_E);
        });
    }

    // Invisible keys' scores become −∞. Selects, since a branch per element would keep the compiler from scheduling
    // across.
    HIPVIT_DEVICE void mask(Scores &acc_s, u32 start, u32 keys) const {
        if constexpr (Bias::PRESENT) {
            add_bias(acc_s, start, keys);
        } else if (!(scale_log2 > 0.0f)) {
            for_each(acc_s, keys, [&](float &s, u32, int) { s *= scale_log2; });
        }
        if (start < common_key || start + KEYS > common_end) {
            // Few tiles need the ranges: computed here, they take no registers elsewhere.
            KeyRange range[COLUMNS];
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    const u32 query = opaque(query_of(g, Tile::of_lane(e).j));
                    KeyRange &of_column = range[g * Tile::COLUMNS + Tile::column(e)];
                    of_column = KeyRange(0, a.keys);
                    if (is_bounded()) of_column = KeyRange(a.visible, query, a.keys);
                }
            }
            for_each(acc_s, keys, [&](float &s, u32 key, int column) {
                s = range[column].contains(start + key) ? s : -infinity();
            });
        }
        if (a.visible.key_mask) {
            const u8 *const key_mask = a.visible.key_mask + u64(image) * a.keys;
            for_each(acc_s, keys, [&](float &s, u32 key, int) {
                s = key_mask[start + key < a.keys ? start + key : a.keys - 1] ? s : -infinity();
            });
        }
    }

    // Updates the row maxima, and rescales the row sums and O to them. `subtrahend` is the maximum, or 0 where no key has
    // been visible: 2^(−∞ − 0) = 0.
    HIPVIT_DEVICE void online_softmax(Scores &acc_s, u32 keys, float (&subtrahend)[COLUMNS]) {
        float tile_max[COLUMNS];
        bool grow = !LAZY;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) tile_max[c] = -infinity();
        for_each(acc_s, keys, [&](float &s, u32, int column) { tile_max[column] = larger(tile_max[column], s); });
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            tile_max[c] = larger(row_max[c], Tile::template reduce_column<Max>(tile_max[c]) * softmax_scale_log2);
            // P up to 2^8 is far from f16's largest value.
            if (LAZY && tile_max[c] > row_max[c] + 8.0f) grow = true;
        }
        if (!LAZY || any_lane(grow)) {
            float rescale[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                const float change = row_max[c] - (tile_max[c] == -infinity() ? 0.0f : tile_max[c]);
                rescale[c] = fast_exp2(change);
                if constexpr (Bias::STATISTICS)
                    row_weighted[c] =
                        multiply_add(row_sum[c], larger(change, LEAST_EXPONENT), row_weighted[c]) * rescale[c];
                row_max[c] = tile_max[c];
                row_sum[c] *= rescale[c];
            }
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                for (int c = 0; c < D / 16; ++c) {
#pragma unroll
                    for (int e = 0; e < Tile::VALUES; ++e)
                        acc_o[g][c].value[e] *= rescale[g * Tile::COLUMNS + Tile::column(e)];
                }
            }
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) subtrahend[c] = row_max[c] == -infinity() ? 0.0f : row_max[c];
    }

    // P = 2^(softmax_scale_log2 · S − subtrahend) of 16 keys of the tile, and its part of the row sums.
    HIPVIT_DEVICE void exponentials(Probabilities &p, Scores &acc_s, int t, const float (&subtrahend)[COLUMNS]) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                const int column = g * Tile::COLUMNS + Tile::column(e);
                float &s = acc_s[g][t].value[e];
                const float x = multiply_add(s, softmax_scale_log2, -subtrahend[column]);
                s = fast_exp2(x);
                row_sum[column] += s;
                if constexpr (Bias::STATISTICS)
                    row_weighted[column] = multiply_add(s, larger(x, LEAST_EXPONENT), row_weighted[column]);
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

    // What O of a group is multiplied by in the end, by column.
    HIPVIT_DEVICE void inverse_sums(int g, float (&inverse)[Tile::COLUMNS]) const {
#pragma unroll
        for (int c = 0; c < Tile::COLUMNS; ++c) {
            const float sum = Tile::template reduce_column<Sum>(row_sum[g * Tile::COLUMNS + c]);
            inverse[c] = sum > 0.0f ? 1.0f / sum : sum; // 0 stays 0, NaN stays NaN
        }
    }

    // The statistics of all rows: ln Σ e^s, the largest probability, and the entropy, −Σ p · ln p = ln Σ 2^x − ln 2 · Σ 2^x · x / Σ 2^x.
    // Of a row without visible keys −∞, 0 and 0.
    HIPVIT_DEVICE void store_statistics() const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            float inverse[Tile::COLUMNS];
            inverse_sums(g, inverse);
#pragma unroll
            for (int c = 0; c < Tile::COLUMNS; ++c) {
                const int at = g * Tile::COLUMNS + c;
                const float log2_sum = fast_log2(Tile::template reduce_column<Sum>(row_sum[at]));
                const float weighted = Tile::template reduce_column<Sum>(row_weighted[at]);
                const float entropy = LN_2 * multiply_add(-weighted, inverse[c], log2_sum);
                int e = 0; // of that column
                while (Tile::column(e) != c) ++e;
                const u32 query = query_of(g, Tile::of_lane(e).j);
                if (query >= a.queries) continue;
                // Several lanes store the same.
                float *const to = this->statistics + ((u64(image) * a.heads + head) * a.queries + query) * 3;
                to[0] = LN_2 * (row_max[at] + log2_sum);
                to[1] = inverse[c];
                to[2] = entropy < 0.0f ? 0.0f : entropy; // by rounding, or without a visible key
            }
        }
    }
};

// K and V go to LDS through registers.
template <class T, int D, class Bias> struct StagedAttention : Attention<T, D, Bias> {
    using Base = Attention<T, D, Bias>;
    using typename Base::Scores, typename Base::Tile;
    using Base::a, Base::THREADS, Base::GROUP, Base::GROUPS, Base::KEYS, Base::lds, Base::q_fragment, Base::acc_o;

    // Whether the next tile is loaded during the work on this one, which needs registers, fewer for 16-bit types. With statistics
    // gfx1100 would not have enough for heads of 128 channels.
#if HIPVIT_AMD
    static constexpr bool PREFETCH = !PLAIN<T> && sizeof(T) == 2 && !(Bias::STATISTICS && D > 96);
#else
    static constexpr bool PREFETCH = D <= 64;
#endif

    // LDS. Rows are 16 bytes longer than their contents, so that they start in different banks.
    static constexpr int ROW = D + int(VEC<T>); // of Q, K and the output
    static constexpr bool TRANSPOSED = !Tile::ROWS_LOAD; // V
    static constexpr int V_ROW = TRANSPOSED ? KEYS + Tile::ALIGNED : ROW;
    static constexpr int KV_ELEMENTS = KEYS * ROW + (TRANSPOSED ? D : KEYS) * V_ROW;
    static constexpr int ELEMENTS = KV_ELEMENTS > GROUP * ROW ? KV_ELEMENTS : GROUP * ROW;
    static constexpr int LDS_VECS = (ELEMENTS + VEC<T> - 1) / VEC<T>;

    static constexpr int VECS_PER_ROW = D / VEC<T>;
    using StagedQ = Staged<T, D, GROUP, VECS_PER_ROW, THREADS>;
    using StagedK = Staged<T, D, KEYS, VECS_PER_ROW, THREADS>;
    // Transposed, the vec128s of a row of V are stored to the same banks: few adjacent threads share a row, but a cache
    //   line.
    using StagedV = Staged<T, D, KEYS, !TRANSPOSED ? VECS_PER_ROW : VECS_PER_ROW % 4 == 0 ? 4 : 2, THREADS>;

    T *const lds_v;
    StagedK staged_k;
    StagedV staged_v;

    HIPVIT_DEVICE StagedAttention(const AttentionArgs &a, Vec128 *memory, u32 image, u32 head, u32 first_query, Bias bias)
        : Base(a, memory, image, head, first_query, bias), lds_v(lds + KEYS * ROW) {}

    // The wave's rows of a group of queries in LDS.
    HIPVIT_DEVICE T *lds_of_wave() const { return lds + wave_index() * 16 * ROW; }

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

    // The rows in LDS of COUNT tokens from `first` on, of `tokens`.
    template <int COUNT> HIPVIT_DEVICE void rotate(u32 first, u32 tokens) const {
        this->template rotate_rows<D, COUNT, THREADS>(thread_index(), first, tokens, a.head_dim,
                                                      [this](u32 row, u32 column) { return lds + row * ROW + column; });
    }

    // Q to registers, through LDS, a group at a time; and the prefetch of the first K.
    HIPVIT_DEVICE void load_q() {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            StagedQ::copy(this->q, a.q_token, this->first_query + g * GROUP, a.queries, a.head_dim, this->vector_q,
                          write_row());
            barrier();
            if constexpr (Bias::ROTATED) {
                if (this->of_queries) {
                    rotate<GROUP>(this->first_query + g * GROUP, a.queries);
                    barrier();
                }
            }
#pragma unroll
            for (int c = 0; c < D / 16; ++c) q_fragment[g][c] = Tile::load_y(lds_of_wave() + c * 16, ROW);
            barrier(); // every wave has loaded its fragments
        }
        if constexpr (PREFETCH)
            staged_k.load(this->k, a.k_token, this->first_key, a.keys, a.head_dim, this->vector_k);
    }

    // The tile of K that begins at key `start` to LDS.
    HIPVIT_DEVICE void load_k(u32 start) {
        if constexpr (PREFETCH) {
            staged_k.store(write_row());
        } else {
            StagedK::copy(this->k, a.k_token, start, a.keys, a.head_dim, this->vector_k, write_row());
        }
        if constexpr (Bias::ROTATED) {
            barrier();
            rotate<KEYS>(start, a.keys); // before V is loaded to registers that this needs
        }
        if constexpr (PREFETCH)
            staged_v.load(this->v, a.v_token, start, a.keys, a.head_dim, this->vector_v);
        barrier(); // K is in LDS, and the previous V has been read
    }

    // Of V likewise.
    HIPVIT_DEVICE void load_v(u32 start) {
        if constexpr (PREFETCH) {
            staged_v.store(write_v());
            staged_k.load(this->k, a.k_token, start + KEYS, a.keys, a.head_dim, this->vector_k);
        } else {
            StagedV::copy(this->v, a.v_token, start, a.keys, a.head_dim, this->vector_v, write_v());
        }
        barrier(); // V is in LDS, and K has been read
    }

    HIPVIT_DEVICE void run() {
        load_q();
        for (u32 start = this->first_key; start < this->end_key; start += KEYS) {
            Scores acc_s;
            float subtrahend[Base::COLUMNS];
            load_k(start);
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t)
                this->qk(acc_s, t, [&](int t, int c) {
                    return Tile::load_x(lds + t * 16 * ROW + c * 16, ROW);
                });
            this->mask(acc_s, start, KEYS);
            this->online_softmax(acc_s, KEYS, subtrahend);
            load_v(start);
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                typename Base::Probabilities p;
                this->exponentials(p, acc_s, t, subtrahend);
                this->pv(p, t, [&](int t, int c) {
                    if constexpr (TRANSPOSED) {
                        return Tile::load_x(lds_v + c * 16 * V_ROW + t * 16, V_ROW);
                    } else {
                        return Tile::load_x_rows(lds_v + t * 16 * V_ROW + c * 16, V_ROW);
                    }
                });
            }
        }
        if constexpr (Bias::STATISTICS) {
            this->store_statistics();
            if (!a.out) return;
        }
        store();
    }

    // O / row_sum to the output, through LDS, a group at a time.
    HIPVIT_DEVICE void store() const {
        const u64 out = this->out();
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
                    lds_of_wave()[at.j * ROW + c * 16 + at.i] =
                        from_float<T>(acc_o[g][c].value[e] * inverse[Tile::column(e)]);
                }
            }
            barrier();
            for (int at = int(thread_index()); at < GROUP * VECS_PER_ROW; at += THREADS) {
                const u32 row = at / VECS_PER_ROW, column = at % VECS_PER_ROW * VEC<T>;
                const u32 query = this->first_query + g * GROUP + row;
                if (query >= a.queries || column >= a.head_dim) continue;
                const T *from = lds + row * ROW + column;
                const u64 element = out + u64(query) * a.out_token + column;
                if (this->is_float8()) {
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

// K and V are copied to LDS asynchronously, tile by tile into the stages in turn. Only the tiles need barriers: a wave copies
// its own queries in, and its own output out.
template <class T, int D, class Bias> struct AsyncAttention : Attention<T, D, Bias> {
    using Base = Attention<T, D, Bias>;
    using typename Base::Scores, typename Base::Tile;
    using Base::a, Base::WAVES, Base::THREADS, Base::GROUPS, Base::KEYS, Base::lds, Base::q_fragment, Base::acc_o,
        Base::end_key;
    using Rows = LdsRows<T, D>;

    static constexpr int STAGES = Base::SHAPE.stages;
    static constexpr int V_AT = KEYS * Rows::PITCH, STAGE = 2 * V_AT; // elements of a stage
    static constexpr int LDS_VECS = STAGES * STAGE / VEC<T>;
    // Queries and output go through stages too, 16 rows per wave and group.
    static constexpr int SLOTS = 2 * KEYS / 16; // of a stage
    static constexpr int Q_STAGES = (GROUPS * WAVES + SLOTS - 1) / SLOTS;
    static_assert(Q_STAGES < STAGES);

    using CopyTile = AsyncCopy<Rows, KEYS, THREADS>;
    using CopyWave = AsyncCopy<Rows, 16, WAVE>;

    // The tile that is to be copied next: its first key, and what this thread copies first.
    u32 next_key;
    const T *next_k, *next_v;
    int stage = 0;                  // of the tile that is worked on
    const u32 k_element, v_element; // of the lane in fragments; those of Q are V's

    HIPVIT_DEVICE AsyncAttention(const AttentionArgs &a, Vec128 *memory, u32 image, u32 head, u32 first_query, Bias bias)
        : Base(a, memory, image, head, first_query, bias), next_key(this->first_key),
          k_element(opaque(Tile::template x_element<Rows>())), v_element(opaque(Tile::template x_rows_element<Rows>())) {
        const CopyTile copy(thread_index());
        next_k = this->k + u64(next_key + copy.row) * a.k_token + copy.column;
        next_v = this->v + u64(next_key + copy.row) * a.v_token + copy.column;
    }

    static HIPVIT_DEVICE int next(int stage) { return stage == STAGES - 1 ? 0 : stage + 1; }
    static HIPVIT_DEVICE int previous(int stage) { return stage == 0 ? STAGES - 1 : stage - 1; }
    HIPVIT_DEVICE T *stage_at(int index) const { return lds + index * STAGE; }
    // The wave's rows of a group of queries or of the output, which begin with stage `first`.
    HIPVIT_DEVICE T *of_wave(int first, int group) const {
        const int slot = group * WAVES + wave_index(), index = first + slot / SLOTS;
        return stage_at(index < STAGES ? index : index - STAGES) + slot % SLOTS * 16 * Rows::PITCH;
    }

    // The next tile, if there is one, to a stage.
    HIPVIT_DEVICE void copy_next(int index) {
        if (next_key < end_key) {
            T *const to = stage_at(index);
            const CopyTile copy(opaque(thread_index()));
            const u32 rows = a.keys - next_key;
            copy.to_lds(to, next_k, a.k_token, rows, a.head_dim, this->vector_k);
            copy.to_lds(to + V_AT, next_v, a.v_token, rows, a.head_dim, this->vector_v);
            next_key += KEYS, next_k += u64(a.k_token) * KEYS, next_v += u64(a.v_token) * KEYS;
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

    // S of a whole tile: the order in which the fewest instructions wait for the one before.
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

    // The tile that begins at key `start`. WHOLE: every query sees all its keys; otherwise what is beyond the last key is
    // skipped, 16 keys at a time.
    template <bool WHOLE> HIPVIT_DEVICE void step(u32 start) {
        const u32 keys = WHOLE || end_key - start > KEYS ? KEYS : end_key - start;
        Scores acc_s;
        float subtrahend[Base::COLUMNS];
        if constexpr (WHOLE) {
            qk_tile(acc_s);
            if constexpr (Bias::PRESENT) this->add_bias(acc_s, start, KEYS);
        } else {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                if (t * 16 >= keys) break;
                this->qk(acc_s, t, load_k());
            }
            this->mask(acc_s, start, keys);
        }
        this->online_softmax(acc_s, keys, subtrahend);
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
            if (t * 16 >= keys) break;
            typename Base::Probabilities p;
            this->exponentials(p, acc_s, t, subtrahend);
            this->pv(p, t, load_v());
        }
    }

    // All tiles. IDLE: for a wave that has no query, but copies its part.
    template <bool IDLE> HIPVIT_DEVICE void tiles() {
        const bool maskless = (Bias::PRESENT || this->scale_log2 > 0.0f) && !a.visible.key_mask;
        for (u32 start = this->first_key; start < end_key; start += KEYS) {
            wait_copies<STAGES - 2>();
            barrier(); // the tile is in LDS, and the previous one, or the queries, have been read
            copy_next(previous(stage));
            if constexpr (Bias::ROTATED) {
                rotate<KEYS, THREADS>(stage_at(stage), thread_index(), start, a.keys);
                barrier();
            }
            if constexpr (!IDLE) {
                if (maskless && start >= this->common_key && start + KEYS <= this->common_end) {
                    step<true>(start);
                } else {
                    step<false>(start);
                }
            }
            stage = next(stage);
        }
    }

    // COUNT rows in LDS, of tokens from `first` on, of `tokens`.
    template <int COUNT, int BY> HIPVIT_DEVICE void rotate(T *rows, u32 thread, u32 first, u32 tokens) const {
        this->template rotate_rows<D, COUNT, BY>(thread, first, tokens, a.head_dim,
                                                 [rows](u32 row, u32 column) { return rows + Rows::at(row, column); });
    }

    // Q to registers, through the last stages, while the first tiles are copied to the others.
    HIPVIT_DEVICE void load_q() {
        constexpr int Q_STAGE = STAGES - Q_STAGES;
        const CopyWave copy(lane_index());
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            const u32 query = this->query_of(g, 0);
            copy.to_lds(of_wave(Q_STAGE, g), this->q + u64(query + copy.row) * a.q_token + copy.column, a.q_token,
                        query < a.queries ? a.queries - query : 0, a.head_dim, this->vector_q);
        }
        end_copies();
#pragma unroll
        for (int s = 0; s < Q_STAGE; ++s) copy_next(s);
        wait_copies<Q_STAGE>();
        wave_barrier();
        if constexpr (Bias::ROTATED) {
            if (this->of_queries) {
#pragma unroll
                for (int g = 0; g < GROUPS; ++g)
                    rotate<16, WAVE>(of_wave(Q_STAGE, g), lane_index(), this->query_of(g, 0), a.queries);
                wave_barrier();
            }
        }
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c)
                q_fragment[g][c] = Tile::load(of_wave(Q_STAGE, g) + Rows::shifted(v_element, c * 16));
        }
        if constexpr (Q_STAGES > 1) {
            barrier(); // the queries have been read
#pragma unroll
            for (int s = Q_STAGE; s < STAGES - 1; ++s) copy_next(s);
        }
    }

    // O / row_sum of a group to the output, through the stages that are free: all but that of the last tile.
    HIPVIT_DEVICE void store(int g) const {
        const u32 query = this->query_of(g, 0);
        if (query >= a.queries) return;
        T *const rows = of_wave(stage, g);
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
        const u64 first = this->out() + u64(query + copy.row) * a.out_token + copy.column;
        if (this->is_float8()) {
            copy.from_lds_as_float8((u8 *)a.out + first, rows, a.out_token, a.queries - query, a.head_dim,
                                    this->is_vector_out(), a.float8_factor);
        } else {
            copy.from_lds((T *)a.out + first, rows, a.out_token, a.queries - query, a.head_dim, this->is_vector_out());
        }
    }

    HIPVIT_DEVICE void run() {
        load_q();
        if (this->query_of(0, 0) >= a.queries) return tiles<true>();
        tiles<false>();
        if constexpr (Bias::STATISTICS) {
            this->store_statistics();
            if (!a.out) return;
        }
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) store(g);
    }
};

// For few queries, where a block's latency counts: a block takes 16 queries of a head, and its waves share out the keys. Each
// wave has a softmax of its own; in the end their results are combined. K goes from memory right to registers, V through LDS.
// Takes what AttentionArgs::split allows: heads of D channels at aligned addresses, no mask, scale > 0. One image of
// ViT-S, B and L (6, 12 and 16 heads of 64, 197 tokens) takes 3.7, 4.9 and 5.0 µs instead of 7.1, 7.1 and 7.2; four of
// ViT-S as long as attention_64, two of ViT-L 8.3 instead of 7.3 (H200, CUDA 13, bf16, in a graph).
template <class T, int D> struct SplitAttention {
    using Tile = Mma<T>;

    static constexpr int WAVES = D <= 80 ? 8 : 4, KEYS = 32, QUERIES = 16, THREADS = WAVES * WAVE;
    static constexpr int COLUMNS = Tile::COLUMNS, CHUNKS = D / 16;
    // LDS of a wave: a tile of V, transposed where its fragments are not loaded by rows; then the wave's O.
    using Rows = LdsRows<T, D>;
    static constexpr int V_ROW = ASYNC_COPIES ? Rows::PITCH : KEYS + Tile::ALIGNED, O_ROW = D + 4;
    static constexpr int V_BYTES = (ASYNC_COPIES ? KEYS : D) * V_ROW * int(sizeof(T)), O_BYTES = 16 * O_ROW * 4;
    static constexpr int WAVE_VECS = ((V_BYTES > O_BYTES ? V_BYTES : O_BYTES) + 15) / 16;
    static constexpr int STATISTICS = WAVES * 16; // floats
    static constexpr int LDS_VECS = WAVES * WAVE_VECS + 2 * STATISTICS / 4;

    const AttentionArgs &a;
    Vec128 *const memory;
    const u32 image, head, first_query;

    using Output = typename Tile::Acc[CHUNKS];
    using Scores = typename Tile::Acc[KEYS / 16];
    using Statistics = float[COLUMNS];

    HIPVIT_DEVICE float *maxima() const { return reinterpret_cast<float *>(memory + WAVES * WAVE_VECS); }
    HIPVIT_DEVICE float *sums() const { return maxima() + STATISTICS; }
    HIPVIT_DEVICE float *acc_of(int wave) const { return reinterpret_cast<float *>(memory + wave * WAVE_VECS); }
    HIPVIT_DEVICE T *lds_v() const { return reinterpret_cast<T *>(acc_of(wave_index())); }

    // A tile of V to LDS; keys beyond the last one become 0.
    HIPVIT_DEVICE void copy_v(const T *v, u32 start) const {
        if constexpr (ASYNC_COPIES) {
            const AsyncCopy<Rows, KEYS, WAVE> copy(lane_index());
            copy.to_lds(lds_v(), v + u64(start + copy.row) * a.v_token + copy.column, a.v_token, a.keys - start, D, true);
            end_copies();
        } else {
#pragma unroll 2
            for (int at = lane_index(); at < KEYS * D / int(VEC<T>); at += WAVE) {
                const int key = at % KEYS, channel = at / KEYS * int(VEC<T>);
                Vec<T> vec;
                vec.whole = {{0, 0, 0, 0}};
                if (start + key < a.keys)
                    vec.whole = *reinterpret_cast<const Vec128 *>(v + u64(start + key) * a.v_token + channel);
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) lds_v()[(channel + i) * V_ROW + key] = vec.element[i];
            }
        }
    }
    HIPVIT_DEVICE typename Tile::X load_v(int t, int c) const {
        if constexpr (ASYNC_COPIES) {
            const u32 element = Tile::template x_rows_element<Rows>();
            return Tile::load_transposed(lds_v() + Rows::shifted(element, c * 16) + t * 16 * Rows::PITCH);
        } else {
            return Tile::load_x(lds_v() + c * 16 * V_ROW + t * 16, V_ROW);
        }
    }

    HIPVIT_DEVICE void run() const {
        const u64 channel = u64(head) * D;
        const T *const q = (const T *)a.q + image * a.q_image + channel;
        const T *const k = (const T *)a.k + image * a.k_image + channel;
        const T *const v = (const T *)a.v + image * a.v_image + channel;
        const float scale_log2 = a.scale * 1.44269504f;

        typename Tile::Y q_fragment[CHUNKS];
        Output acc_o = {};
        Statistics row_max, row_sum;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) row_max[c] = -infinity(), row_sum[c] = 0.0f;

        bool first = true;
        for (u32 start = wave_index() * KEYS; start < a.keys; start += WAVES * KEYS) {
            wave_barrier(); // the previous tile of V has been read
            copy_v(v, start);
            if (first) {
                Tile::gather_y(q_fragment, [&](int j) {
                    const u32 query = first_query + j;
                    return q + u64(query < a.queries ? query : a.queries - 1) * a.q_token;
                });
                first = false;
            }
            Scores acc_s = {};
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                typename Tile::X fragment[CHUNKS];
                Tile::gather_x(fragment, [&](int i) {
                    const u32 key = start + t * 16 + i;
                    return k + u64(key < a.keys ? key : a.keys - 1) * a.k_token;
                });
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) Tile::multiply(acc_s[t], fragment[c], q_fragment[c]);
            }
            softmax(acc_s, acc_o, row_max, row_sum, start, scale_log2);
            wait_copies<0>();
            wave_barrier(); // V is in LDS
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                const auto p = Tile::as_y(acc_s[t]);
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) Tile::multiply(acc_o[c], load_v(t, c), p);
            }
        }
        combine(acc_o, row_max, row_sum);
    }

    // S becomes P; the row sums and O are rescaled to the new maxima, or to 0 while all scores are −∞.
    HIPVIT_DEVICE void softmax(Scores &acc_s, Output &acc_o, Statistics &row_max, Statistics &row_sum, u32 start,
                               float scale_log2) const {
        float tile_max[COLUMNS], subtrahend[COLUMNS], rescale[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) tile_max[c] = -infinity();
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                float &s = acc_s[t].value[e];
                s = start + t * 16 + Tile::of_lane(e).i < a.keys ? s * scale_log2 : -infinity();
                tile_max[Tile::column(e)] = larger(tile_max[Tile::column(e)], s);
            }
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const float before = row_max[c];
            row_max[c] = larger(before, Tile::template reduce_column<Max>(tile_max[c]));
            subtrahend[c] = row_max[c] == -infinity() ? 0.0f : row_max[c];
            rescale[c] = fast_exp2(before - subtrahend[c]);
            row_sum[c] *= rescale[c];
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) acc_o[c].value[e] *= rescale[Tile::column(e)];
        }
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                float &s = acc_s[t].value[e];
                s = fast_exp2(s - subtrahend[Tile::column(e)]);
                row_sum[Tile::column(e)] += s;
            }
        }
    }

    // The waves' O, maxima and sums to LDS, and out of them the output.
    HIPVIT_DEVICE void combine(const Output &acc_o, const Statistics &row_max, const Statistics &row_sum) const {
        wave_barrier(); // the last tile of V has been read
        float *const acc = acc_of(wave_index());
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                const auto at = Tile::of_lane(e);
                acc[at.j * O_ROW + c * 16 + at.i] = acc_o[c].value[e];
            }
        }
#pragma unroll
        for (int e = 0; e < Tile::VALUES; ++e) {
            const float sum = Tile::template reduce_column<Sum>(row_sum[Tile::column(e)]);
            const int at = wave_index() * 16 + Tile::of_lane(e).j; // several lanes store the same
            maxima()[at] = row_max[Tile::column(e)], sums()[at] = sum;
        }
        barrier();
        const u64 out = image * a.out_image + u64(head) * D;
        for (int at = int(thread_index()); at < 16 * D / 4; at += THREADS) {
            const int query = at / (D / 4), channel = at % (D / 4) * 4;
            if (first_query + query >= a.queries) continue;
            float largest = -infinity(), sum = 0.0f, o[4] = {};
#pragma unroll
            for (int w = 0; w < WAVES; ++w) largest = larger(largest, maxima()[w * 16 + query]);
            if (largest == -infinity()) largest = 0.0f;
#pragma unroll
            for (int w = 0; w < WAVES; ++w) {
                // 0 for a wave without keys, whose O is 0.
                const float factor = fast_exp2(maxima()[w * 16 + query] - largest);
                const float *const from = acc_of(w) + query * O_ROW + channel;
                sum = multiply_add(sums()[w * 16 + query], factor, sum);
#pragma unroll
                for (int i = 0; i < 4; ++i) o[i] = multiply_add(from[i], factor, o[i]);
            }
            const float inverse = sum > 0.0f ? 1.0f / sum : sum; // 0 stays 0, NaN stays NaN
            union {
                Vec64 whole;
                T element[4];
            } vec;
#pragma unroll
            for (int i = 0; i < 4; ++i) vec.element[i] = from_float<T>(o[i] * inverse);
            const u64 element = out + u64(first_query + query) * a.out_token + channel;
            if (a.float8_factor != 0.0f) {
                float x[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) x[i] = to_float(vec.element[i]);
                store_float8((u8 *)a.out + element, 4, true, a.float8_factor, x);
            } else {
                *reinterpret_cast<Vec64 *>((T *)a.out + element) = vec.whole;
            }
        }
    }
};

template <bool ASYNC, class T, int D, class Bias> struct BlockOf {
    using Type = StagedAttention<T, D, Bias>;
};
template <class T, int D, class Bias> struct BlockOf<true, T, D, Bias> {
    using Type = AsyncAttention<T, D, Bias>;
};

// `bias_of(head)` is what is added to the head's scores.
template <class T, int D, class BiasOf> HIPVIT_DEVICE void attention(const AttentionArgs &a, const BiasOf &bias_of) {
    using Bias = decltype(bias_of(0));
    using Block = typename BlockOf<(shape_of<T, D>().stages > 0), T, D, Bias>::Type;
    HIPVIT_LDS static Vec128 memory[Block::LDS_VECS];
    const u32 tiles = (a.queries + Block::QUERIES - 1) / Block::QUERIES;
    const u32 head = block_index() / tiles % a.heads;
    const u32 image = block_index() / tiles / a.heads;
    if (image >= a.images) return;
    Block(a, memory, image, head, block_index() % tiles * Block::QUERIES, bias_of(head)).run();
}

template <class T, int D> HIPVIT_DEVICE void attention(const AttentionArgs &a) {
    attention<T, D>(a, [](u32) { return NoBias<T>{}; });
}

template <class T, int D> HIPVIT_DEVICE void attention_bias(const AttentionBiasArgs &a) {
    attention<T, D>(a.attention, [&](u32 head) {
        return ScoreBias<T>{(const T *)a.bias + head * a.head, a.query};
    });
}

template <class T, int D> HIPVIT_DEVICE void attention_statistics(const AttentionStatisticsArgs &a) {
    const AttentionBiasArgs &scores = a.scores;
    attention<T, D>(scores.attention, [&](u32 head) {
        const T *const rows = scores.bias ? (const T *)scores.bias + head * scores.head : nullptr;
        return ScoreBiasAndStatistics<T>{{rows, scores.query}, a.statistics};
    });
}

template <class T, int D> HIPVIT_DEVICE void attention_rope(const AttentionRopeArgs &a) {
    attention<T, D>(a.attention, [&](u32 head) { return Rotation<T>(a.rope, head, a.attention.heads); });
}

// A block's shape does not depend on the bias or the rotation.
template <class T, int D> using Unbiased = Attention<T, D, NoBias<T>>;

// On CDNA 2 and 3 clang takes registers for the rotation that cost a wave of a SIMD, if it may.
template <class T, int D> HIPVIT_DEVICE constexpr int waves_of_rope() {
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
    if (sizeof(T) == 2) return D <= 64 ? 3 : 2;
#endif
    return 1;
}

// Types that matrix cores do not multiply, and f32, whose V would not fit LDS, take their keys in turn.
template <class T> constexpr bool SPLITS = !PLAIN<T> && sizeof(T) == 2;

template <class T, int D> HIPVIT_DEVICE void attention_split(const AttentionArgs &a) {
    if constexpr (SPLITS<T>) {
        using Block = SplitAttention<T, D>;
        HIPVIT_LDS static Vec128 memory[Block::LDS_VECS];
        const u32 tiles = (a.queries + Block::QUERIES - 1) / Block::QUERIES;
        const u32 head = block_index() / tiles % a.heads;
        const u32 image = block_index() / tiles / a.heads;
        if (image >= a.images) return;
        Block{a, memory, image, head, block_index() % tiles * Block::QUERIES}.run();
    } else {
        attention<T, D>(a);
    }
}

template <class T, int D> HIPVIT_DEVICE constexpr int threads_of_split() {
    if constexpr (SPLITS<T>) {
        return SplitAttention<T, D>::THREADS;
    } else {
        return Unbiased<T, D>::THREADS;
    }
}
template <class T, int D> HIPVIT_DEVICE constexpr u32 block_of_split() {
    if constexpr (SPLITS<T>) {
        return SplitAttention<T, D>::WAVES << ATTENTION_WAVES_SHIFT | SplitAttention<T, D>::QUERIES;
    } else {
        return Unbiased<T, D>::WAVES << ATTENTION_WAVES_SHIFT | Unbiased<T, D>::QUERIES;
    }
}

#define ENTRY(D, T)                                                                                                    \
    HIPVIT_KERNEL_BLOCKS((Unbiased<T, D>::THREADS), (Unbiased<T, D>::SHAPE.blocks))                                    \
    attention_##D##_##T(AttentionArgs a) { attention<T, D>(a); }                                                       \
    HIPVIT_MODULE_GLOBAL(attention_##D##_##T##_block,                                                                  \
                         Unbiased<T, D>::WAVES << ATTENTION_WAVES_SHIFT | Unbiased<T, D>::QUERIES)                     \
    HIPVIT_KERNEL((threads_of_split<T, D>()))                                                                          \
    attention_##D##_split_##T(AttentionArgs a) { attention_split<T, D>(a); }                                           \
    HIPVIT_MODULE_GLOBAL(attention_##D##_split_##T##_block, block_of_split<T, D>())
#define ENTRIES(D) HIPVIT_FOR_DTYPES(ENTRY, D)
#define BIAS_ENTRY(D, T)                                                                                               \
    HIPVIT_KERNEL_BLOCKS((Unbiased<T, D>::THREADS), (Unbiased<T, D>::SHAPE.blocks))                                    \
    attention_##D##_bias_##T(AttentionBiasArgs a) { attention_bias<T, D>(a); }                                         \
    HIPVIT_MODULE_GLOBAL(attention_##D##_bias_##T##_block,                                                             \
                         Unbiased<T, D>::WAVES << ATTENTION_WAVES_SHIFT | Unbiased<T, D>::QUERIES)
#define BIAS_ENTRIES(D) HIPVIT_FOR_DTYPES(BIAS_ENTRY, D)
#define STATS_ENTRY(D, T)                                                                                              \
    HIPVIT_KERNEL_BLOCKS((Unbiased<T, D>::THREADS), (Unbiased<T, D>::SHAPE.blocks))                                    \
    attention_##D##_stats_##T(AttentionStatisticsArgs a) { attention_statistics<T, D>(a); }                            \
    HIPVIT_MODULE_GLOBAL(attention_##D##_stats_##T##_block,                                                            \
                         Unbiased<T, D>::WAVES << ATTENTION_WAVES_SHIFT | Unbiased<T, D>::QUERIES)
#define STATS_ENTRIES(D) HIPVIT_FOR_DTYPES(STATS_ENTRY, D)

#define ROPE_ENTRY(D, T)                                                                                               \
    HIPVIT_KERNEL_BLOCKS((Unbiased<T, D>::THREADS), (Unbiased<T, D>::SHAPE.blocks))                                    \
    HIPVIT_WAVES((waves_of_rope<T, D>())) attention_##D##_rope_##T(AttentionRopeArgs a) { attention_rope<T, D>(a); }   \
    HIPVIT_MODULE_GLOBAL(attention_##D##_rope_##T##_block,                                                             \
                         Unbiased<T, D>::WAVES << ATTENTION_WAVES_SHIFT | Unbiased<T, D>::QUERIES)
#define ROPE_ENTRIES(D) HIPVIT_FOR_DTYPES(ROPE_ENTRY, D)

// With HIPVIT_HEAD_DIM, or HIPVIT_BIAS_HEAD_DIM and so on, for one head size alone, which saves time where kernels are compiled at
// run time.
#if defined(HIPVIT_HEAD_DIM)
ENTRIES(HIPVIT_HEAD_DIM)
#elif defined(HIPVIT_BIAS_HEAD_DIM)
BIAS_ENTRIES(HIPVIT_BIAS_HEAD_DIM)
#elif defined(HIPVIT_STATS_HEAD_DIM)
STATS_ENTRIES(HIPVIT_STATS_HEAD_DIM)
#elif defined(HIPVIT_ROPE_HEAD_DIM)
ROPE_ENTRIES(HIPVIT_ROPE_HEAD_DIM)
#else
HIPVIT_ATTENTION_HEAD_DIMS(ENTRIES)
HIPVIT_ATTENTION_HEAD_DIMS(BIAS_ENTRIES)
HIPVIT_ATTENTION_HEAD_DIMS(ROPE_ENTRIES)
HIPVIT_ATTENTION_HEAD_DIMS(STATS_ENTRIES)
#endif
