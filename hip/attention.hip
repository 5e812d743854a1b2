// attention: out = softmax(scale · Q·Kᵀ + mask) · V in one pass over the keys, by an online softmax on matrix cores.
//
// Shapes: q, out T [B, Nq, H · d]; k, v T [B, Nk, H · d], by strides, so that packed QKV is read where it is. Any Nq
//   and Nk. attention_<D>_T takes heads of d ≤ D channels, padded to D with zeros; attention.h lists the D. Visible
//   keys: include/visibility.h. The output of a query without visible keys is 0.
// Alignment: any; vec128 access where d, the strides and the addresses allow it.
// Accumulators: f32 for S = Q·Kᵀ, the row sums and O; P is rounded to T for P·V.
// Geometry: blocks of ATTENTION_WAVES waves. A block takes 64 or 128 queries of one head of one image, a wave 16 of
//   each 64: the module global attention_<D>_T_queries says how many. Grid: images × heads × ⌈Nq / queries⌉; blocks
//   beyond that return at once. K and V go through LDS in tiles of 32 or 64 keys; Q and the output go through the same
//   LDS.
#include "attention.h"
#include "async_copy.hpp"
#include "key_range.hpp"
#include "mma.hpp"

using namespace hipvit;

#ifndef ATTN_WAVES
#define ATTN_WAVES ATTENTION_WAVES
#endif
constexpr int WAVES = ATTN_WAVES, THREADS = WAVES * WAVE;
constexpr int GROUP = WAVES * 16; // queries of a group

template <class T> union Vec {
    Vec128 whole;
    T element[VEC<T>];
};

// Rows of D elements in LDS, without bank conflicts between rows: vec128s exchanged by row where D allows it, otherwise
// rows that are 16 bytes longer than their contents.
template <class T, int D> struct LdsRows {
    static constexpr int VECS = D / VEC<T>;
    static constexpr bool EXCHANGED = (VECS & (VECS - 1)) == 0;
    static constexpr int PITCH = EXCHANGED ? D : D + int(VEC<T>);
    static HIPVIT_DEVICE int at(int row, int column) {
        // 128 bytes are all banks.
        constexpr int PER_LINE = VECS < 8 ? 8 / VECS : 1, EXCHANGES = VECS < 8 ? VECS : 8;
        return row * PITCH + (EXCHANGED ? column ^ row / PER_LINE % EXCHANGES * int(VEC<T>) : column);
    }
};

// COUNT rows of a head, from row `first`, that the block copies to LDS through registers; what is beyond `rows` or `d`
// is 0. A thread copies VECS vec128s, of which `write(row, column, vec)` stores one; ADJACENT threads copy adjacent
// ones of a row.
template <class T, int D, int COUNT, int ADJACENT> struct Staged {
    static constexpr int ALL = COUNT * D / VEC<T>, VECS = (ALL + THREADS - 1) / THREADS;
    Vec<T> vec[VECS];

    struct Position {
        bool exists;
        int row, column;
        HIPVIT_DEVICE Position(int p) {
            const int at = int(thread_index()) + p * THREADS;
            exists = ALL % THREADS == 0 || at < ALL;
            row = at / ADJACENT % COUNT;
            column = (at / ADJACENT / COUNT * ADJACENT + at % ADJACENT) * VEC<T>;
        }
    };
    static HIPVIT_DEVICE Vec<T> load(Position at, const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector) {
        Vec<T> vec;
        vec.whole = {{0, 0, 0, 0}};
        if (at.exists && first + at.row < rows && u32(at.column) < d) {
            const T *source = from + u64(first + at.row) * stride + at.column;
            if (vector) {
                vec.whole = *reinterpret_cast<const Vec128 *>(source);
            } else {
                // Clamped indices instead of a branch per element.
                const u32 last = opaque(d - 1 - at.column);
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) {
                    const T element = source[i < last ? i : last];
                    if (i <= last) vec.element[i] = element;
                }
            }
        }
        return vec;
    }
    HIPVIT_DEVICE void load_all(const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector) {
#pragma unroll
        for (int p = 0; p < VECS; ++p) vec[p] = load(p, from, stride, first, rows, d, vector);
    }
    HIPVIT_DEVICE void load(const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector) {
        if (SPECIALIZE_LOADS && vector) {
            load_all(from, stride, first, rows, d, true);
        } else {
            load_all(from, stride, first, rows, d, !SPECIALIZE_LOADS && vector);
        }
    }
    template <class Write> HIPVIT_DEVICE void store(const Write &write) const {
#pragma unroll
        for (int p = 0; p < VECS; ++p) {
            const Position at = p;
            if (at.exists) write(at.row, at.column, vec[p]);
        }
    }
    // Loads and stores at once, in few registers.
    template <class Write>
    static HIPVIT_DEVICE void copy_all(const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector, const Write &write) {
#pragma unroll 2
        for (int p = 0; p < VECS; ++p) {
            const Position at = p;
            const Vec<T> vec = load(at, from, stride, first, rows, d, vector);
            if (at.exists) write(at.row, at.column, vec);
        }
    }
    template <class Write>
    static HIPVIT_DEVICE void copy(const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector, const Write &write) {
        if (SPECIALIZE_LOADS && vector) {
            copy_all(from, stride, first, rows, d, true, write);
        } else {
            copy_all(from, stride, first, rows, d, !SPECIALIZE_LOADS && vector, write);
        }
    }
};

// A block's work. The state is registers once everything is inlined.
template <class T, int D> struct Attention {
    using Tile = Mma<T>;

    // Whether tiles of K and V are copied to LDS asynchronously, STAGES − 1 of them ahead, or through registers.
    static constexpr bool ASYNC = ASYNC_COPIES && !PLAIN<T>;

    // A block takes GROUPS × GROUP queries and works on tiles of KEYS keys. With two groups a wave uses each fragment of
    // K and V that it loads from LDS twice: on CDNA 3 LDS delivers 16-bit fragments no faster than the matrix cores
    // consume them for one group. On CDNA 1, on RDNA and, for larger heads, on NVIDIA two groups would need too many
    // registers.
    // PREFETCH: the next tile is loaded during the work on this one, which needs registers too, fewer for 16-bit types.
#if HIPVIT_AMD
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
    static constexpr int GROUPS = sizeof(T) == 2 ? 2 : 1;
#else
    static constexpr int GROUPS = 1;
#endif
    static constexpr int KEYS = 32;
    static constexpr bool PREFETCH = !PLAIN<T> && sizeof(T) == 2;
#else
#ifdef ATTN_GROUPS
    static constexpr int GROUPS = ATTN_GROUPS;
    static constexpr int KEYS = ATTN_KEYS;
    static constexpr int STAGES = ATTN_STAGES;
#else
    static constexpr int GROUPS = !PLAIN<T> && D <= 64 ? 2 : 1;
    static constexpr int KEYS = GROUPS == 2 ? 64 : 32;
    static constexpr int STAGES = 3;
#endif
    static constexpr bool PREFETCH = !PLAIN<T> || D <= 64;
#endif
    static constexpr int QUERIES = GROUPS * GROUP;
    static constexpr int COLUMNS = GROUPS * Tile::COLUMNS; // queries that a lane has scores of

    using Scores = typename Tile::Acc[GROUPS][KEYS / 16];
#ifdef ATTN_LAZY
    static constexpr bool LAZY = ATTN_LAZY;
#else
    static constexpr bool LAZY = ASYNC;
#endif
    using Probabilities = typename Tile::Y[GROUPS];

    const AttentionArgs &a;
    T *const lds;
    const T *const q, *const k, *const v;
    T *const out;
    const u8 *const key_mask;
    const bool whole_vecs; // d is a multiple of a vec128
    const bool vector_q, vector_k, vector_v;
    const u32 first_query;
    u32 first_key, end_key;     // of the tiles that the block works on
    u32 common_key, common_end; // of the keys that every query of the block sees, by position
    // e^(scale · s) = 2^(scale_log2 · s). If positive, it is applied when the maximum is subtracted, as
    // softmax_scale_log2; otherwise before the maximum is taken.
    const float scale_log2, softmax_scale_log2;

    typename Tile::Y q_fragment[GROUPS][D / 16];
    typename Tile::Acc acc_o[GROUPS][D / 16] = {};
    float row_max[COLUMNS], row_sum[COLUMNS];

    HIPVIT_DEVICE Attention(const AttentionArgs &a, Vec128 *memory, u64 image, u32 head, u32 first_query)
        : a(a), lds(reinterpret_cast<T *>(memory)), q((const T *)a.q + image * a.q_image + u64(head) * a.head_dim),
          k((const T *)a.k + image * a.k_image + u64(head) * a.head_dim),
          v((const T *)a.v + image * a.v_image + u64(head) * a.head_dim),
          out((T *)a.out + image * a.out_image + u64(head) * a.head_dim),
          key_mask(a.visible.key_mask ? a.visible.key_mask + image * a.keys : nullptr),
          whole_vecs(a.head_dim % VEC<T> == 0), vector_q(is_vector(q, a.q_token)), vector_k(is_vector(k, a.k_token)),
          vector_v(is_vector(v, a.v_token)), first_query(first_query), scale_log2(a.scale * 1.44269504f), softmax_scale_log2(scale_log2 > 0.0f ? scale_log2 : 1.0f) {
        const u32 last_query = (first_query + QUERIES < a.queries ? first_query + QUERIES : a.queries) - 1;
        const KeyRange first(a.visible, first_query, a.keys), last(a.visible, last_query, a.keys);
        first_key = first.first / KEYS * KEYS, end_key = last.end();
        common_key = last.first, common_end = first.end();
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            row_max[c] = -infinity();
            row_sum[c] = 0.0f;
        }
    }

    HIPVIT_DEVICE bool is_vector(const T *rows, u32 stride) const {
        return whole_vecs && stride % VEC<T> == 0 && aligned(rows, VEC128_BYTES);
    }
    // The wave's query `j` of a group.
    HIPVIT_DEVICE u32 query_of(int group, int j) const { return first_query + group * GROUP + wave_index() * 16 + j; }

    // Calls change(score, key of the tile, column) for the lane's scores of the first `LIVE` groups and `keys` keys.
    template <int LIVE, class Change> static HIPVIT_DEVICE void for_each(Scores &acc_s, u32 keys, const Change &change) {
#pragma unroll
        for (int g = 0; g < LIVE; ++g) {
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
    template <int LIVE, class Load> HIPVIT_DEVICE void qk(Scores &acc_s, int t, const Load &load_k) const {
#pragma unroll
        for (int g = 0; g < LIVE; ++g) acc_s[g][t] = {};
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
            const auto fragment = load_k(t, c);
#pragma unroll
            for (int g = 0; g < LIVE; ++g) Tile::multiply(acc_s[g][t], fragment, q_fragment[g][c]);
            if (c % 4 == 3) schedule_fence();
        }
        schedule_fence();
    }

    // Invisible keys' scores become −∞. Selects, since a branch per element would keep the compiler from scheduling
    // across.
    template <int LIVE> HIPVIT_DEVICE void mask(Scores &acc_s, u32 start, u32 keys) const {
        if (!(scale_log2 > 0.0f)) for_each<LIVE>(acc_s, keys, [&](float &s, u32, int) { s *= scale_log2; });
        if (start < common_key || start + KEYS > common_end) {
            // Few tiles need the ranges: computed here, they take no registers elsewhere.
            KeyRange range[COLUMNS];
#pragma unroll
            for (int g = 0; g < LIVE; ++g) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    const u32 query = opaque(query_of(g, Tile::of_lane(e).j));
                    range[g * Tile::COLUMNS + Tile::column(e)] = KeyRange(a.visible, query, a.keys);
                }
            }
            for_each<LIVE>(acc_s, keys, [&](float &s, u32 key, int column) {
                s = range[column].contains(start + key) ? s : -infinity();
            });
        }
        if (key_mask)
            for_each<LIVE>(acc_s, keys, [&](float &s, u32 key, int) {
                s = key_mask[start + key < a.keys ? start + key : a.keys - 1] ? s : -infinity();
            });
    }

    // Updates the row maxima, and rescales the row sums and O to them. `subtrahend` is the maximum, or 0 where no key has
    // been visible: 2^(−∞ − 0) = 0. LAZY: maxima that grow by less than 2^8 are left as they are.
    template <int LIVE> HIPVIT_DEVICE void online_softmax(Scores &acc_s, u32 keys, float (&subtrahend)[COLUMNS]) {
        float tile_max[COLUMNS];
        bool grow = !LAZY;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) tile_max[c] = -infinity();
        for_each<LIVE>(acc_s, keys, [&](float &s, u32, int column) { tile_max[column] = larger(tile_max[column], s); });
#pragma unroll
        for (int c = 0; c < LIVE * Tile::COLUMNS; ++c) {
            tile_max[c] = larger(row_max[c], Tile::template reduce_column<Max>(tile_max[c]) * softmax_scale_log2);
            if (LAZY && tile_max[c] > row_max[c] + 8.0f) grow = true;
        }
        if (!LAZY || any_lane(grow)) {
            float rescale[COLUMNS];
#pragma unroll
            for (int c = 0; c < LIVE * Tile::COLUMNS; ++c) {
                rescale[c] = fast_exp2(row_max[c] - (tile_max[c] == -infinity() ? 0.0f : tile_max[c]));
                row_max[c] = tile_max[c];
                row_sum[c] *= rescale[c];
            }
#pragma unroll
            for (int g = 0; g < LIVE; ++g) {
#pragma unroll
                for (int c = 0; c < D / 16; ++c) {
#pragma unroll
                    for (int e = 0; e < Tile::VALUES; ++e)
                        acc_o[g][c].value[e] *= rescale[g * Tile::COLUMNS + Tile::column(e)];
                }
            }
        }
#pragma unroll
        for (int c = 0; c < LIVE * Tile::COLUMNS; ++c) subtrahend[c] = row_max[c] == -infinity() ? 0.0f : row_max[c];
    }

    // P = 2^(softmax_scale_log2 · S − subtrahend) of 16 keys of the tile, and its part of the row sums.
    template <int LIVE>
    HIPVIT_DEVICE void exponentials(Probabilities &p, Scores &acc_s, int t, const float (&subtrahend)[COLUMNS]) {
#pragma unroll
        for (int g = 0; g < LIVE; ++g) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                const int column = g * Tile::COLUMNS + Tile::column(e);
                float &s = acc_s[g][t].value[e];
                s = fast_exp2(multiply_add(s, softmax_scale_log2, -subtrahend[column]));
                row_sum[column] += s;
            }
            p[g] = Tile::as_y(acc_s[g][t]);
        }
        schedule_fence();
    }

    // O += Vᵀ·Pᵀ of 16 keys of the tile.
    template <int LIVE, class Load> HIPVIT_DEVICE void pv(const Probabilities &p, int t, const Load &load_v) {
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
            const auto fragment = load_v(t, c);
#pragma unroll
            for (int g = 0; g < LIVE; ++g) Tile::multiply(acc_o[g][c], fragment, p[g]);
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

    // A vec128 of the output.
    HIPVIT_DEVICE void store_out(const T *from, u32 query, u32 column, bool vector) const {
        if (query >= a.queries || column >= a.head_dim) return;
        T *to = out + u64(query) * a.out_token + column;
        if (vector) {
            *reinterpret_cast<Vec128 *>(to) = *reinterpret_cast<const Vec128 *>(from);
        } else {
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i)
                if (column + i < a.head_dim) to[i] = from[i];
        }
    }
};

// K and V go to LDS through registers.
template <class T, int D> struct StagedAttention : Attention<T, D> {
    using Base = Attention<T, D>;
    using typename Base::Scores, typename Base::Tile;
    using Base::a, Base::KEYS, Base::GROUPS, Base::PREFETCH, Base::lds, Base::q_fragment, Base::acc_o;

    // LDS. Rows are 16 bytes longer than their contents, so that they start in different banks.
    static constexpr int ROW = D + int(VEC<T>); // of Q, K and the output
    static constexpr bool TRANSPOSED = !Tile::ROWS_LOAD; // V
    static constexpr int V_ROW = TRANSPOSED ? KEYS + Tile::ALIGNED : ROW;
    static constexpr int KV_ELEMENTS = KEYS * ROW + (TRANSPOSED ? D : KEYS) * V_ROW;
    static constexpr int ELEMENTS = KV_ELEMENTS > GROUP * ROW ? KV_ELEMENTS : GROUP * ROW;
    static constexpr int LDS_VECS = (ELEMENTS + VEC<T> - 1) / VEC<T>;

    static constexpr int VECS_PER_ROW = D / VEC<T>;
    using StagedQ = Staged<T, D, GROUP, VECS_PER_ROW>;
    using StagedK = Staged<T, D, KEYS, VECS_PER_ROW>;
    // Transposed, the vec128s of a row of V are stored to the same banks: few adjacent threads share a row, but a cache
    //   line.
    using StagedV = Staged<T, D, KEYS, !TRANSPOSED ? VECS_PER_ROW : VECS_PER_ROW % 4 == 0 ? 4 : 2>;

    T *const lds_v;
    StagedK staged_k;
    StagedV staged_v;

    HIPVIT_DEVICE StagedAttention(const AttentionArgs &a, Vec128 *memory, u64 image, u32 head, u32 first_query)
        : Base(a, memory, image, head, first_query), lds_v(lds + KEYS * ROW) {}

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

    // Q to registers, through LDS, a group at a time; and the prefetch of the first K.
    HIPVIT_DEVICE void load_q() {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            StagedQ::copy(this->q, a.q_token, this->first_query + g * GROUP, a.queries, a.head_dim, this->vector_q,
                          write_row());
            barrier();
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
            staged_v.load(this->v, a.v_token, start, a.keys, a.head_dim, this->vector_v);
        } else {
            StagedK::copy(this->k, a.k_token, start, a.keys, a.head_dim, this->vector_k, write_row());
        }
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
                this->template qk<GROUPS>(acc_s, t, [&](int t, int c) {
                    return Tile::load_x(lds + t * 16 * ROW + c * 16, ROW);
                });
            this->template mask<GROUPS>(acc_s, start, KEYS);
            this->template online_softmax<GROUPS>(acc_s, KEYS, subtrahend);
            load_v(start);
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                typename Base::Probabilities p;
                this->template exponentials<GROUPS>(p, acc_s, t, subtrahend);
                this->template pv<GROUPS>(p, t, [&](int t, int c) {
                    if constexpr (TRANSPOSED) {
                        return Tile::load_x(lds_v + c * 16 * V_ROW + t * 16, V_ROW);
                    } else {
                        return Tile::load_x_rows(lds_v + t * 16 * V_ROW + c * 16, V_ROW);
                    }
                });
            }
        }
        store();
    }

    // O / row_sum to the output, through LDS, a group at a time.
    HIPVIT_DEVICE void store() const {
        const bool vector_out = this->is_vector(this->out, a.out_token);
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
                this->store_out(lds + row * ROW + column, this->first_query + g * GROUP + row, column, vector_out);
            }
        }
    }
};

// K and V are copied to LDS asynchronously, tile by tile into STAGES stages in turn. Only the tiles need barriers: a wave
// copies its own queries in, and its own output out. Q·Kᵀ of a tile is computed among the exponentials and P·V of the
// previous one, so that the matrix cores have work during the exponentials.
template <class T, int D> struct AsyncAttention : Attention<T, D> {
    using Base = Attention<T, D>;
    using typename Base::Scores, typename Base::Tile;
    using Base::a, Base::KEYS, Base::GROUPS, Base::lds, Base::q_fragment, Base::acc_o, Base::end_key;
    using Rows = LdsRows<T, D>;

    static constexpr int STAGES = Base::STAGES;
    static constexpr int V_AT = KEYS * Rows::PITCH, STAGE = 2 * V_AT; // elements of a stage
    static constexpr int LDS_VECS = STAGES * STAGE / VEC<T>;
    // Queries and output take whole groups of a stage.
    static constexpr int GROUPS_PER_STAGE = 2 * KEYS / GROUP;
    static_assert(GROUPS_PER_STAGE > 0);
    static constexpr int Q_STAGES = (GROUPS + GROUPS_PER_STAGE - 1) / GROUPS_PER_STAGE;
    static_assert(STAGES >= 3 && Q_STAGES < STAGES);

    u32 next_key;         // of the tile that is to be copied next
    int stage = 0; // of the tile that is worked on; the ones before it are free

    HIPVIT_DEVICE AsyncAttention(const AttentionArgs &a, Vec128 *memory, u64 image, u32 head, u32 first_query)
        : Base(a, memory, image, head, first_query), next_key(this->first_key) {}

    HIPVIT_DEVICE T *stage_at(int index) const { return lds + index * STAGE; }
    // The wave's rows of a group of queries or of the output, which begin with stage `first`.
    HIPVIT_DEVICE T *of_wave(int first, int group) const {
        int index = first + group / GROUPS_PER_STAGE;
        if (index >= STAGES) index -= STAGES;
        return stage_at(index) + (group % GROUPS_PER_STAGE * GROUP + wave_index() * 16) * Rows::PITCH;
    }

    // COUNT rows, copied by THREADS threads, of which this one is `thread`.
    template <int COUNT, int THREADS>
    HIPVIT_DEVICE void copy(T *to, const T *from, u32 stride, u32 first, u32 rows, bool vector, int thread) const {
        constexpr int VECS_PER_ROW = D / VEC<T>, ALL = COUNT * VECS_PER_ROW, VECS = (ALL + THREADS - 1) / THREADS;
        if (vector) {
#pragma unroll
            for (int p = 0; p < VECS; ++p) {
                const int at = thread + p * THREADS, row = at / VECS_PER_ROW, column = at % VECS_PER_ROW * VEC<T>;
                if (ALL % THREADS == 0 || at < ALL)
                    copy_async(to + Rows::at(row, column), from + u64(first + row) * stride + column,
                               first + row < rows && column < a.head_dim);
            }
        } else {
#pragma unroll 1
            for (int at = thread; at < ALL; at += THREADS) {
                const int row = at / VECS_PER_ROW, column = at % VECS_PER_ROW * VEC<T>;
                Vec<T> vec;
                vec.whole = {{0, 0, 0, 0}};
                if (first + row < rows) {
                    const T *source = from + u64(first + row) * stride + column;
#pragma unroll
                    for (int i = 0; i < int(VEC<T>); ++i)
                        if (column + i < int(a.head_dim)) vec.element[i] = source[i];
                }
                *reinterpret_cast<Vec128 *>(to + Rows::at(row, column)) = vec.whole;
            }
        }
    }

    // The next tile, if there is one, to a stage.
    HIPVIT_DEVICE void copy_next(int index) {
        if (next_key < end_key) {
            T *const to = stage_at(index);
            const int thread = int(opaque(thread_index())); // or the compiler keeps all addresses in registers
            copy<KEYS, THREADS>(to, this->k, a.k_token, next_key, a.keys, this->vector_k, thread);
            copy<KEYS, THREADS>(to + V_AT, this->v, a.v_token, next_key, a.keys, this->vector_v, thread);
            next_key += KEYS;
        }
        end_copies();
    }

    static HIPVIT_DEVICE int next(int stage) { return stage == STAGES - 1 ? 0 : stage + 1; }
    static HIPVIT_DEVICE int previous(int stage) { return stage == 0 ? STAGES - 1 : stage - 1; }

    template <int LIVE> HIPVIT_DEVICE void qk(Scores &acc_s, int t, int stage) const {
        const T *const lds_k = stage_at(stage);
        Base::template qk<LIVE>(acc_s, t, [&](int t, int c) {
            return Tile::template load_x<Rows>(lds_k + t * 16 * Rows::PITCH, c * 16);
        });
    }

    // The tile that begins at key `start`, and Q·Kᵀ of the next. WHOLE: every key of this tile is visible to every query, and
    // the next tile has no fewer keys.
    template <int LIVE, bool WHOLE> HIPVIT_DEVICE void step(Scores &acc_s, u32 start) {
        const u32 keys = WHOLE || end_key - start > KEYS ? KEYS : end_key - start;
        const u32 next_keys = WHOLE || end_key - start > 2 * KEYS ? KEYS : end_key - start - keys;
        float subtrahend[Base::COLUMNS];
        const T *const lds_v = stage_at(stage) + V_AT;
        if constexpr (!WHOLE) this->template mask<LIVE>(acc_s, start, keys);
        this->template online_softmax<LIVE>(acc_s, keys, subtrahend);
        const int next_stage = next(stage);
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
            if (t * 16 >= keys) break;
            typename Base::Probabilities p;
            this->template exponentials<LIVE>(p, acc_s, t, subtrahend);
            if (WHOLE || t * 16 < next_keys) qk<LIVE>(acc_s, t, next_stage);
            this->template pv<LIVE>(p, t, [&](int t, int c) {
                return Tile::template load_x_rows<Rows>(lds_v + t * 16 * Rows::PITCH, c * 16);
            });
        }
    }

    template <int LIVE> HIPVIT_DEVICE void tiles() {
        Scores acc_s;
        if (this->first_key >= end_key) return;
        wait_copies<STAGES - 2>();
        barrier(); // the first tile is in LDS, and the queries have been read
        if constexpr (LIVE) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) qk<LIVE>(acc_s, t, 0);
        }
        const bool maskless = this->scale_log2 > 0.0f && !this->key_mask;
        for (u32 start = this->first_key; start < end_key; start += KEYS) {
            wait_copies<STAGES - 3>();
            barrier(); // the next tile is in LDS, and the previous one has been read
            copy_next(previous(stage));
            if constexpr (LIVE) {
                if (maskless && start >= this->common_key && start + KEYS <= this->common_end && start + 2 * KEYS <= end_key) {
                    step<LIVE, true>(acc_s, start);
                } else {
                    step<LIVE, false>(acc_s, start);
                }
            }
            stage = next(stage);
        }
    }

    HIPVIT_DEVICE void run() {
        constexpr int Q_STAGE = STAGES - Q_STAGES;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g)
            copy<16, WAVE>(of_wave(Q_STAGE, g), this->q, a.q_token, this->query_of(g, 0), a.queries, this->vector_q,
                           lane_index());
        end_copies();
#pragma unroll
        for (int s = 0; s < Q_STAGE; ++s) copy_next(s);
        wait_copies<Q_STAGE>();
        wave_barrier();
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c)
                q_fragment[g][c] = Tile::template load_y<Rows>(of_wave(Q_STAGE, g), c * 16);
        }
        if constexpr (Q_STAGES > 1) {
            barrier(); // the queries have been read
#pragma unroll
            for (int s = Q_STAGE; s < STAGES - 1; ++s) copy_next(s);
        }
        if (this->query_of(0, 0) >= a.queries) {
            tiles<0>();
        } else if (GROUPS == 2 && this->query_of(GROUPS - 1, 0) >= a.queries) {
            tiles<1>();
            store(0);
        } else {
            tiles<GROUPS>();
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) store(g);
        }
    }

    // O / row_sum of a group to the output, through the stages that are free.
    HIPVIT_DEVICE void store(int g) const {
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
        const bool vector_out = this->is_vector(this->out, a.out_token);
#pragma unroll
        for (int p = 0; p < D / int(VEC<T>) * 16 / WAVE; ++p) {
            const int at = lane_index() + p * WAVE, row = at / (D / VEC<T>), column = at % (D / VEC<T>) * VEC<T>;
            this->store_out(rows + Rows::at(row, column), this->query_of(g, row), column, vector_out);
        }
    }
};

template <bool ASYNC, class T, int D> struct Select { using Block = StagedAttention<T, D>; };
template <class T, int D> struct Select<true, T, D> { using Block = AsyncAttention<T, D>; };

template <class T, int D> HIPVIT_DEVICE void attention(const AttentionArgs &a) {
    using Block = typename Select<Attention<T, D>::ASYNC, T, D>::Block;
    HIPVIT_LDS static Vec128 memory[Block::LDS_VECS];
    const u32 tiles = (a.queries + Block::QUERIES - 1) / Block::QUERIES;
    const u32 head = block_index() / tiles % a.heads;
    const u64 image = block_index() / tiles / a.heads;
    if (image >= a.images) return;
    Block(a, memory, image, head, block_index() % tiles * Block::QUERIES).run();
}

#ifdef ATTN_MIN
#define ATTN_KERNEL extern "C" __global__ void __launch_bounds__(THREADS, ATTN_MIN)
#else
#define ATTN_KERNEL HIPVIT_KERNEL(THREADS)
#endif
#define ENTRY(D, T)                                                                                                    \
    ATTN_KERNEL attention_##D##_##T(AttentionArgs a) { attention<T, D>(a); }                                \
    HIPVIT_MODULE_GLOBAL(attention_##D##_##T##_queries, Attention<T, D>::QUERIES)
#define ENTRIES(D) HIPVIT_FOR_DTYPES(ENTRY, D)

// With HIPVIT_HEAD_DIM, for one head size alone, which saves time where kernels are compiled at run time.
#ifdef HIPVIT_HEAD_DIM
ENTRIES(HIPVIT_HEAD_DIM)
#else
HIPVIT_ATTENTION_HEAD_DIMS(ENTRIES)
#endif
