// attention: softmax(scale · Q·Kᵀ + mask) · V in one pass over the keys, by an online softmax on matrix cores.
//
// Q [B,Nq,H·d], K and V [B,Nk,H·d] by strides, so that packed operands are read where they lie; out [B,Nq,H·d]. Any Nq
// and Nk. Entry attention_<D>_T takes heads of d ≤ D channels (D: 32, 64, 80, 96, 128); what lacks up to D is zero.
// Which keys a query sees: visibility.h. A query that sees none gets zeros.
// Alignment: any; 16 bytes at a time where d, the strides and the addresses allow it.
// Accumulators: f32 for scores, sums and output; the weights are rounded to T for the second product.
// Geometry: a block of four waves takes 64 queries of one head of one image, or 128: a wave 16 of each 64. The grid is
//   images × heads × tiles of 64; where a block takes 128, those that are left over end at once. Keys come 32 or 64 at a
//   time through LDS, which is that of Q and of the result too.
#include "attention.h"
#include "mma.hpp"
#include "visible.hpp"

using namespace hipvit;

constexpr int WAVES = ATTENTION_WAVES, THREADS = WAVES * WAVE, ROWS = WAVES * 16;

// A block has GROUPS × ROWS queries, and works on KEYS at once. With two groups, what a wave loads from LDS serves twice:
// the matrix cores of CDNA 3 multiply 16-bit numbers as fast as the LDS delivers those of one. On CDNA 1, on RDNA and, for
// larger heads, on NVIDIA two would take too many registers.
// AHEAD, the next keys are fetched while these are worked on, which takes registers too: less for 16-bit numbers.
#if HIPVIT_AMD
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
template <class T, int D> constexpr int GROUPS = sizeof(T) == 2 ? 2 : 1;
#else
template <class T, int D> constexpr int GROUPS = 1;
#endif
template <class T, int D> constexpr int KEYS = 32;
template <class T, int D> constexpr bool AHEAD = !PLAIN<T> && sizeof(T) == 2;
#else
template <class T, int D> constexpr int GROUPS = !PLAIN<T> && D <= 64 ? 2 : 1;
template <class T, int D> constexpr int KEYS = GROUPS<T, D> == 2 ? 64 : 32;
template <class T, int D> constexpr bool AHEAD = !PLAIN<T> || D <= 64;
#endif

// Elements between rows in LDS: 16 bytes more than the row, so that rows begin in different banks.
template <class T> constexpr int PAD = int(PACK<T>);

template <class T> union Pack {
    Bytes16 whole;
    T element[PACK<T>];
};

// COUNT rows from `first` of a head on their way into LDS through registers, with zeros for what is beyond `rows` or `d`.
// A thread has PACKS of their packs, which go through `write(row, column, pack)`; neighbours have TOGETHER of a row.
template <class T, int D, int COUNT, int TOGETHER> struct Staged {
    static constexpr int ALL = COUNT * D / PACK<T>, PACKS = (ALL + THREADS - 1) / THREADS;
    Pack<T> pack[PACKS];

    struct Place {
        bool exists;
        int row, column;
        HIPVIT_DEVICE Place(int p) {
            const int at = int(thread_index()) + p * THREADS;
            exists = ALL % THREADS == 0 || at < ALL;
            row = at / TOGETHER % COUNT;
            column = (at / TOGETHER / COUNT * TOGETHER + at % TOGETHER) * PACK<T>;
        }
    };
    static HIPVIT_DEVICE Pack<T> load(Place at, const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector) {
        Pack<T> pack;
        pack.whole = {{0, 0, 0, 0}};
        if (at.exists && first + at.row < rows && u32(at.column) < d) {
            const T *source = from + u64(first + at.row) * stride + at.column;
            if (vector) {
                pack.whole = *reinterpret_cast<const Bytes16 *>(source);
            } else {
                // Loads what exists, and no branch an element.
                const u32 last = opaque(d - 1 - at.column);
#pragma unroll
                for (u32 i = 0; i < PACK<T>; ++i) {
                    const T element = source[i < last ? i : last];
                    if (i <= last) pack.element[i] = element;
                }
            }
        }
        return pack;
    }
    HIPVIT_DEVICE void fetch(const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector) {
#pragma unroll
        for (int p = 0; p < PACKS; ++p) pack[p] = load(p, from, stride, first, rows, d, vector);
    }
    template <class Write> HIPVIT_DEVICE void put(const Write &write) const {
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const Place at = p;
            if (at.exists) write(at.row, at.column, pack[p]);
        }
    }
    // Both at once, with few registers.
    template <class Write>
    static HIPVIT_DEVICE void move(const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector, const Write &write) {
#pragma unroll 2
        for (int p = 0; p < PACKS; ++p) {
            const Place at = p;
            const Pack<T> pack = load(at, from, stride, first, rows, d, vector);
            if (at.exists) write(at.row, at.column, pack);
        }
    }
};

// Calls `change(score, key, column)` for a lane's scores of a tile of keys.
template <class Tile, int GROUPS, int TILES, class Change>
HIPVIT_DEVICE void each(typename Tile::Acc (&score)[GROUPS][TILES], const Change &change) {
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e)
                change(score[g][t].value[e], u32(t * 16 + Tile::of_lane(e).i), g * Tile::COLUMNS + Tile::column(e));
            schedule_fence();
        }
    }
}

template <class T, int D> HIPVIT_DEVICE void attention(const AttentionArgs &a) {
    using Tile = Mma<T>;
    constexpr int GROUPS = ::GROUPS<T, D>, KEYS = ::KEYS<T, D>, QUERIES = GROUPS * ROWS;
    constexpr int COLUMNS = GROUPS * Tile::COLUMNS; // queries of a lane
    constexpr bool AHEAD = ::AHEAD<T, D>;
    constexpr int ROW = D + PAD<T>; // of Q, K and the result
    constexpr bool TRANSPOSED = !Tile::ROWS_LOAD;
    constexpr int V_ROW = TRANSPOSED ? KEYS + Tile::ALIGNED : ROW;
    constexpr int USED = KEYS * ROW + (TRANSPOSED ? D : KEYS) * V_ROW;
    constexpr int SIZE = USED > ROWS * ROW ? USED : ROWS * ROW;
    HIPVIT_LDS static Bytes16 memory[(SIZE + PACK<T> - 1) / PACK<T>];
    T *lds = reinterpret_cast<T *>(memory), *lds_v = lds + KEYS * ROW;
    constexpr int PER_ROW = D / PACK<T>;
    using StagedRows = Staged<T, D, ROWS, PER_ROW>;
    using StagedK = Staged<T, D, KEYS, PER_ROW>;
    // Transposed, the packs of a row of V go to the same banks: neighbours have few of a row, but a cache line's worth.
    using StagedV = Staged<T, D, KEYS, !TRANSPOSED ? PER_ROW : PER_ROW % 4 == 0 ? 4 : 2>;

    const u32 tiles = (a.queries + QUERIES - 1) / QUERIES;
    const u32 head = block_index() / tiles % a.heads;
    const u64 image = block_index() / tiles / a.heads;
    if (image >= a.images) return;
    const u32 first_query = block_index() % tiles * QUERIES;
    const u64 in_token = u64(head) * a.head_dim;
    const T *q = (const T *)a.q + image * a.q_image + in_token, *k = (const T *)a.k + image * a.k_image + in_token;
    const T *v = (const T *)a.v + image * a.v_image + in_token;
    T *out = (T *)a.out + image * a.out_image + in_token;
    const u8 *key_mask = a.visible.key_mask ? a.visible.key_mask + image * a.keys : nullptr;
    const bool whole = a.head_dim % PACK<T> == 0;
    auto vector = [&](const T *rows, u32 stride) { return whole && stride % PACK<T> == 0 && aligned(rows, 16); };
    const bool vector_q = vector(q, a.q_token), vector_k = vector(k, a.k_token), vector_v = vector(v, a.v_token);
    auto row_write = [&](int row, int column, const Pack<T> &pack) {
        *reinterpret_cast<Bytes16 *>(lds + row * ROW + column) = pack.whole;
    };
    auto v_write = [&](int row, int column, const Pack<T> &pack) {
        if constexpr (TRANSPOSED) {
#pragma unroll
            for (u32 i = 0; i < PACK<T>; ++i) lds_v[(column + i) * V_ROW + row] = pack.element[i];
        } else {
            *reinterpret_cast<Bytes16 *>(lds_v + row * V_ROW + column) = pack.whole;
        }
    };

    // Which of the block's queries is the wave's query `j` of a group.
    auto query_of = [&](int group, int j) { return first_query + group * ROWS + wave_index() * 16 + j; };
    const u32 last_query = (first_query + QUERIES < a.queries ? first_query + QUERIES : a.queries) - 1;
    // Every query of the block sees what its first and its last see.
    const KeyRange first_range(a.visible, first_query, a.keys), last_range(a.visible, last_query, a.keys);
    const u32 begin = first_range.first / KEYS * KEYS, end = last_range.end();

    T *mine = lds + wave_index() * 16 * ROW;
    typename Tile::Y query[GROUPS][D / 16];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        StagedRows::move(q, a.q_token, first_query + g * ROWS, a.queries, a.head_dim, vector_q, row_write);
        barrier();
#pragma unroll
        for (int c = 0; c < D / 16; ++c) query[g][c] = Tile::load_y(mine + c * 16, ROW);
        barrier(); // all have theirs
    }
    StagedK staged_k;
    if constexpr (AHEAD) staged_k.fetch(k, a.k_token, begin, a.keys, a.head_dim, vector_k);

    typename Tile::Acc mixed[GROUPS][D / 16] = {};
    float top[COLUMNS], total[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        top[c] = -infinity();
        total[c] = 0.0f;
    }
    KeyRange range[COLUMNS];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
        for (int e = 0; e < Tile::VALUES; ++e)
            range[g * Tile::COLUMNS + Tile::column(e)] =
                KeyRange(a.visible, query_of(g, Tile::of_lane(e).j), a.keys);
    }
    // In powers of two. Where it is positive it is applied late, with the subtraction of the highest.
    const float scale = a.scale * 1.44269504f;
    const float late = scale > 0.0f ? scale : 1.0f;

    for (u32 start = begin; start < end; start += KEYS) {
        StagedV staged_v;
        if constexpr (AHEAD) {
            staged_k.put(row_write);
            staged_v.fetch(v, a.v_token, start, a.keys, a.head_dim, vector_v);
        } else {
            StagedK::move(k, a.k_token, start, a.keys, a.head_dim, vector_k, row_write);
        }
        barrier(); // K is there, and the V of before has been read

        typename Tile::Acc score[GROUPS][KEYS / 16] = {};
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
                const auto keys = Tile::load_x(lds + t * 16 * ROW + c * 16, ROW);
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) Tile::multiply(score[g][t], keys, query[g][c]);
                if (c % 4 == 3) schedule_fence();
            }
            schedule_fence();
        }
        if (!(scale > 0.0f)) each<Tile>(score, [&](float &s, u32, int) { s *= scale; });
        // Selects, not branches: a branch an element would keep the compiler from scheduling what is around.
        if (start < last_range.first || start + KEYS > first_range.end())
            each<Tile>(score, [&](float &s, u32 key, int column) {
                s = range[column].contains(start + key) ? s : -infinity();
            });
        if (key_mask)
            each<Tile>(score, [&](float &s, u32 key, int) {
                s = key_mask[start + key < a.keys ? start + key : a.keys - 1] ? s : -infinity();
            });

        float highest[COLUMNS], base[COLUMNS], shrink[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) highest[c] = -infinity();
        each<Tile>(score, [&](float &s, u32, int column) { highest[column] = larger(highest[column], s); });
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            highest[c] = larger(top[c], Tile::template reduce_column<Max>(highest[c]) * late);
            base[c] = highest[c] == -infinity() ? 0.0f : highest[c]; // no key yet: 2^(−∞ − 0) is 0
            shrink[c] = fast_exp2(top[c] - base[c]);
            top[c] = highest[c];
            total[c] *= shrink[c];
        }
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e)
                    mixed[g][c].value[e] *= shrink[g * Tile::COLUMNS + Tile::column(e)];
            }
        }

        if constexpr (AHEAD) {
            staged_v.put(v_write);
            staged_k.fetch(k, a.k_token, start + KEYS, a.keys, a.head_dim, vector_k);
        } else {
            StagedV::move(v, a.v_token, start, a.keys, a.head_dim, vector_v, v_write);
        }
        barrier(); // V is there, and K has been read
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
            typename Tile::Y weights[GROUPS];
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    const int column = g * Tile::COLUMNS + Tile::column(e);
                    float &s = score[g][t].value[e];
                    s = fast_exp2(multiply_add(s, late, -base[column]));
                    total[column] += s;
                }
                weights[g] = Tile::as_y(score[g][t]);
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
                for (int g = 0; g < GROUPS; ++g) Tile::multiply(mixed[g][c], values, weights[g]);
                if (c % 4 == 3) schedule_fence();
            }
        }
    }

    const bool vector_out = vector(out, a.out_token);
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        float inverse[Tile::COLUMNS];
#pragma unroll
        for (int c = 0; c < Tile::COLUMNS; ++c) {
            const float sum = Tile::template reduce_column<Sum>(total[g * Tile::COLUMNS + c]);
            inverse[c] = sum > 0.0f ? 1.0f / sum : sum; // 0 stays 0, NaN stays NaN
        }
        barrier(); // what the LDS held has been read
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                const auto at = Tile::of_lane(e);
                mine[at.j * ROW + c * 16 + at.i] = from_float<T>(mixed[g][c].value[e] * inverse[Tile::column(e)]);
            }
        }
        barrier();
        for (int at = int(thread_index()); at < ROWS * PER_ROW; at += THREADS) {
            const u32 row = at / PER_ROW, column = at % PER_ROW * PACK<T>, query = first_query + g * ROWS + row;
            if (query >= a.queries || column >= a.head_dim) continue;
            const T *from = lds + row * ROW + column;
            T *to = out + u64(query) * a.out_token + column;
            if (vector_out) {
                *reinterpret_cast<Bytes16 *>(to) = *reinterpret_cast<const Bytes16 *>(from);
            } else {
#pragma unroll
                for (u32 i = 0; i < PACK<T>; ++i)
                    if (column + i < a.head_dim) to[i] = from[i];
            }
        }
    }
}

#define ATTENTION(D) ENTRIES(D) // so that D is expanded first
#define ENTRIES(D)                                                                                                     \
    HIPVIT_KERNEL(THREADS) attention_##D##_f32(AttentionArgs a) { attention<float, D>(a); }                            \
    HIPVIT_KERNEL(THREADS) attention_##D##_f16(AttentionArgs a) { attention<f16, D>(a); }                              \
    HIPVIT_KERNEL(THREADS) attention_##D##_bf16(AttentionArgs a) { attention<bf16, D>(a); }

// A compiler at run time may ask for one head size, and be done in a fraction of the time.
#ifdef HIPVIT_HEAD_DIM
ATTENTION(HIPVIT_HEAD_DIM)
#else
HIPVIT_ATTENTION_HEAD_DIMS(ATTENTION)
#endif
