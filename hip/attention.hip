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
#include "key_range.hpp"
#include "mma.hpp"

using namespace hipvit;

constexpr int WAVES = ATTENTION_WAVES, THREADS = WAVES * WAVE;
constexpr int GROUP = WAVES * 16; // queries of a group

template <class T> union Vec {
    Vec128 whole;
    T element[VEC<T>];
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
    HIPVIT_DEVICE void load(const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector) {
#pragma unroll
        for (int p = 0; p < VECS; ++p) vec[p] = load(p, from, stride, first, rows, d, vector);
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
    static HIPVIT_DEVICE void copy(const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector, const Write &write) {
#pragma unroll 2
        for (int p = 0; p < VECS; ++p) {
            const Position at = p;
            const Vec<T> vec = load(at, from, stride, first, rows, d, vector);
            if (at.exists) write(at.row, at.column, vec);
        }
    }
};

// A block's work. The state is registers once everything is inlined.
template <class T, int D> struct Attention {
    using Tile = Mma<T>;

    // A block takes GROUPS × GROUP queries and works on tiles of KEYS keys. Two groups use each fragment of K and V
    // that a
    // wave loads from LDS twice: on CDNA 3 LDS delivers 16-bit fragments no faster than the matrix cores consume them
    // for one group. On CDNA 1, on RDNA and, for larger heads, on NVIDIA two groups would need too many registers.
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
    static constexpr int GROUPS = !PLAIN<T> && D <= 64 ? 2 : 1;
    static constexpr int KEYS = GROUPS == 2 ? 64 : 32;
    static constexpr bool PREFETCH = !PLAIN<T> || D <= 64;
#endif
    static constexpr int QUERIES = GROUPS * GROUP;
    static constexpr int COLUMNS = GROUPS * Tile::COLUMNS; // queries that a lane has scores of

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

    using Scores = typename Tile::Acc[GROUPS][KEYS / 16];

    const AttentionArgs &a;
    T *const lds, *const lds_v;
    const T *const q, *const k, *const v;
    T *const out;
    const u8 *const key_mask;
    const bool whole_vecs; // d is a multiple of a vec128
    const bool vector_q, vector_k, vector_v;
    const u32 first_query, last_query;
    // Of the block's first and last query. Keys in both are visible to every query of the block.
    const KeyRange first_range, last_range;
    const u32 first_key, end_key; // of the tiles that the block works on
    // e^(scale · s) = 2^(scale_log2 · s). If positive, it is applied when the maximum is subtracted, as
    // softmax_scale_log2; otherwise before the maximum is taken.
    const float scale_log2, softmax_scale_log2;

    StagedK staged_k;
    StagedV staged_v;
    typename Tile::Y q_fragment[GROUPS][D / 16];
    typename Tile::Acc acc_o[GROUPS][D / 16] = {};
    float row_max[COLUMNS], row_sum[COLUMNS];

    HIPVIT_DEVICE Attention(const AttentionArgs &a, Vec128 *memory, u64 image, u32 head, u32 first_query)
        : a(a), lds(reinterpret_cast<T *>(memory)), lds_v(lds + KEYS * ROW),
          q((const T *)a.q + image * a.q_image + u64(head) * a.head_dim),
          k((const T *)a.k + image * a.k_image + u64(head) * a.head_dim),
          v((const T *)a.v + image * a.v_image + u64(head) * a.head_dim),
          out((T *)a.out + image * a.out_image + u64(head) * a.head_dim),
          key_mask(a.visible.key_mask ? a.visible.key_mask + image * a.keys : nullptr),
          whole_vecs(a.head_dim % VEC<T> == 0), vector_q(is_vector(q, a.q_token)), vector_k(is_vector(k, a.k_token)),
          vector_v(is_vector(v, a.v_token)), first_query(first_query),
          last_query((first_query + QUERIES < a.queries ? first_query + QUERIES : a.queries) - 1),
          first_range(a.visible, first_query, a.keys), last_range(a.visible, last_query, a.keys),
          first_key(first_range.first / KEYS * KEYS), end_key(last_range.end()),
          scale_log2(a.scale * 1.44269504f), softmax_scale_log2(scale_log2 > 0.0f ? scale_log2 : 1.0f) {}

    HIPVIT_DEVICE bool is_vector(const T *rows, u32 stride) const {
        return whole_vecs && stride % VEC<T> == 0 && aligned(rows, VEC128_BYTES);
    }
    // The wave's query `j` of a group.
    HIPVIT_DEVICE u32 query_of(int group, int j) const { return first_query + group * GROUP + wave_index() * 16 + j; }
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

    // Calls change(score, key of the tile, column) for the lane's scores.
    template <class Change> static HIPVIT_DEVICE void for_each(Scores &acc_s, const Change &change) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e)
                    change(acc_s[g][t].value[e], u32(t * 16 + Tile::of_lane(e).i), g * Tile::COLUMNS + Tile::column(e));
                schedule_fence();
            }
        }
    }

    // Q to registers, through LDS, a group at a time; and the prefetch of the first K.
    HIPVIT_DEVICE void load_q() {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            StagedQ::copy(q, a.q_token, first_query + g * GROUP, a.queries, a.head_dim, vector_q, write_row());
            barrier();
#pragma unroll
            for (int c = 0; c < D / 16; ++c) q_fragment[g][c] = Tile::load_y(lds_of_wave() + c * 16, ROW);
            barrier(); // every wave has loaded its fragments
        }
        if constexpr (PREFETCH) staged_k.load(k, a.k_token, first_key, a.keys, a.head_dim, vector_k);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            row_max[c] = -infinity();
            row_sum[c] = 0.0f;
        }
    }

    // The tile of K that begins at key `start` to LDS.
    HIPVIT_DEVICE void load_k(u32 start) {
        if constexpr (PREFETCH) {
            staged_k.store(write_row());
            staged_v.load(v, a.v_token, start, a.keys, a.head_dim, vector_v);
        } else {
            StagedK::copy(k, a.k_token, start, a.keys, a.head_dim, vector_k, write_row());
        }
        barrier(); // K is in LDS, and the previous V has been read
    }

    // Of V likewise.
    HIPVIT_DEVICE void load_v(u32 start) {
        if constexpr (PREFETCH) {
            staged_v.store(write_v());
            staged_k.load(k, a.k_token, start + KEYS, a.keys, a.head_dim, vector_k);
        } else {
            StagedV::copy(v, a.v_token, start, a.keys, a.head_dim, vector_v, write_v());
        }
        barrier(); // V is in LDS, and K has been read
    }

    // S = K·Qᵀ, so that a lane has scores of few queries.
    HIPVIT_DEVICE void qk(Scores &acc_s) const {
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
                const auto keys = Tile::load_x(lds + t * 16 * ROW + c * 16, ROW);
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) Tile::multiply(acc_s[g][t], keys, q_fragment[g][c]);
                if (c % 4 == 3) schedule_fence();
            }
            schedule_fence();
        }
    }

    // Invisible keys' scores become −∞. Selects, since a branch per element would keep the compiler from scheduling
    // across.
    HIPVIT_DEVICE void mask(Scores &acc_s, u32 start) const {
        if (!(scale_log2 > 0.0f)) for_each(acc_s, [&](float &s, u32, int) { s *= scale_log2; });
        if (start < last_range.first || start + KEYS > first_range.end()) {
            // Few tiles need the ranges: computed here, they take no registers elsewhere.
            KeyRange range[COLUMNS];
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    const u32 query = opaque(query_of(g, Tile::of_lane(e).j));
                    range[g * Tile::COLUMNS + Tile::column(e)] = KeyRange(a.visible, query, a.keys);
                }
            }
            for_each(acc_s, [&](float &s, u32 key, int column) {
                s = range[column].contains(start + key) ? s : -infinity();
            });
        }
        if (key_mask)
            for_each(acc_s, [&](float &s, u32 key, int) {
                s = key_mask[start + key < a.keys ? start + key : a.keys - 1] ? s : -infinity();
            });
    }

    // Updates the row maxima, and rescales the row sums and O to them. `subtrahend` is the maximum, or 0 where no key
    // has
    // been visible: 2^(−∞ − 0) = 0.
    HIPVIT_DEVICE void online_softmax(Scores &acc_s, float (&subtrahend)[COLUMNS]) {
        float tile_max[COLUMNS], rescale[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) tile_max[c] = -infinity();
        for_each(acc_s, [&](float &s, u32, int column) { tile_max[column] = larger(tile_max[column], s); });
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const float new_max = larger(row_max[c], Tile::template reduce_column<Max>(tile_max[c]) * softmax_scale_log2);
            subtrahend[c] = new_max == -infinity() ? 0.0f : new_max;
            rescale[c] = fast_exp2(row_max[c] - subtrahend[c]);
            row_max[c] = new_max;
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

    // O += Vᵀ·Pᵀ; P = 2^(softmax_scale_log2 · S − subtrahend) is computed, and summed, 16 keys at a time.
    HIPVIT_DEVICE void pv(Scores &acc_s, const float (&subtrahend)[COLUMNS]) {
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
            typename Tile::Y p[GROUPS];
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
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
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
                typename Tile::X values;
                if constexpr (TRANSPOSED) {
                    values = Tile::load_x(lds_v + c * 16 * V_ROW + t * 16, V_ROW);
                } else {
                    values = Tile::load_x_rows(lds_v + t * 16 * V_ROW + c * 16, V_ROW);
                }
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) Tile::multiply(acc_o[g][c], values, p[g]);
                if (c % 4 == 3) schedule_fence();
            }
        }
    }

    // O / row_sum to the output, through LDS, a group at a time.
    HIPVIT_DEVICE void store() const {
        const bool vector_out = is_vector(out, a.out_token);
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            float inverse[Tile::COLUMNS];
#pragma unroll
            for (int c = 0; c < Tile::COLUMNS; ++c) {
                const float sum = Tile::template reduce_column<Sum>(row_sum[g * Tile::COLUMNS + c]);
                inverse[c] = sum > 0.0f ? 1.0f / sum : sum; // 0 stays 0, NaN stays NaN
            }
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
                const u32 query = first_query + g * GROUP + row;
                if (query >= a.queries || column >= a.head_dim) continue;
                const T *from = lds + row * ROW + column;
                T *to = out + u64(query) * a.out_token + column;
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

template <class T, int D> HIPVIT_DEVICE void attention(const AttentionArgs &a) {
    using Block = Attention<T, D>;
    HIPVIT_LDS static Vec128 memory[Block::LDS_VECS];
    const u32 tiles = (a.queries + Block::QUERIES - 1) / Block::QUERIES;
    const u32 head = block_index() / tiles % a.heads;
    const u64 image = block_index() / tiles / a.heads;
    if (image >= a.images) return;

    Block block(a, memory, image, head, block_index() % tiles * Block::QUERIES);
    block.load_q();
    for (u32 start = block.first_key; start < block.end_key; start += Block::KEYS) {
        typename Block::Scores acc_s = {};
        float subtrahend[Block::COLUMNS];
        block.load_k(start);
        block.qk(acc_s);
        block.mask(acc_s, start);
        block.online_softmax(acc_s, subtrahend);
        block.load_v(start);
        block.pv(acc_s, subtrahend);
    }
    block.store();
}

#define ENTRY(D, T)                                                                                                    \
    HIPVIT_KERNEL(THREADS) attention_##D##_##T(AttentionArgs a) { attention<T, D>(a); }                                \
    HIPVIT_MODULE_GLOBAL(attention_##D##_##T##_queries, Attention<T, D>::QUERIES)
#define ENTRIES(D) HIPVIT_FOR_DTYPES(ENTRY, D)

// With HIPVIT_HEAD_DIM, for one head size alone, which saves time where kernels are compiled at run time.
#ifdef HIPVIT_HEAD_DIM
ENTRIES(HIPVIT_HEAD_DIM)
#else
HIPVIT_ATTENTION_HEAD_DIMS(ENTRIES)
#endif
