// attention: softmax(scale · Q·Kᵀ + mask) · V in one pass over the keys, by an online softmax on matrix cores.
//
// Q [B,Nq,H·d], K and V [B,Nk,H·d] by strides, so that packed operands are read where they lie; out [B,Nq,H·d]. Any Nq
// and Nk. Entry attention_<D>_T takes heads of d ≤ D channels (D: 32, 64, 80, 96, 128); what lacks up to D is zero.
// Which keys a query sees: Visibility in args.h. A query that sees none gets zeros.
// Alignment: any; 16 bytes at a time where d, the strides and the addresses allow it.
// Accumulators: f32 for scores, sums and output; the weights are rounded to T for the second product.
// Geometry: a block of four waves takes 64 queries of one head of one image, a wave 16; the grid is images × heads ×
//   tiles of 64. Keys come through LDS, 64 at a time (32 in f32, and by plain FMA if D is 128); the LDS is that of Q and
//   of the result too.
#include "args.h"
#include "mma.hpp"
#include "visible.hpp"

using namespace hipvit;

constexpr int WAVES = 4, THREADS = WAVES * WAVE, QUERIES = WAVES * 16;

// Elements between rows in LDS: 16 bytes more than the row, so that rows begin in different banks.
template <class T> constexpr int PAD = int(PACK<T>);

// Rows `first` … of a head into LDS, with zeros for what is beyond `rows` or `d`. Through `write(row, column, pack)`.
template <class T, int D, int ROWS, class Write>
HIPVIT_DEVICE void stage(const T *from, u32 stride, u32 first, u32 rows, u32 d, bool vector, const Write &write) {
    constexpr int PER_ROW = D / PACK<T>;
#pragma unroll 2
    for (int at = int(thread_index()); at < ROWS * PER_ROW; at += THREADS) {
        const int row = at / PER_ROW, column = at % PER_ROW * PACK<T>;
        union {
            Bytes16 whole;
            T element[PACK<T>];
        } pack;
        pack.whole = {{0, 0, 0, 0}};
        if (first + row < rows && u32(column) < d) {
            const T *source = from + u64(first + row) * stride + column;
            if (vector) {
                pack.whole = *reinterpret_cast<const Bytes16 *>(source);
            } else {
                // Loads what exists, and no branch an element.
                const u32 last = d - 1 - column;
#pragma unroll
                for (u32 i = 0; i < PACK<T>; ++i) {
                    const T element = source[i < last ? i : last];
                    if (i <= last) pack.element[i] = element;
                }
            }
        }
        write(row, column, pack.whole, pack.element);
    }
}

template <class T, int D> HIPVIT_DEVICE void attention(const AttentionArgs &a) {
    using Tile = Mma<T>;
    // With 64, plain FMA on 128 channels spills registers where waves have 32 lanes (gfx1030, bf16, clang 19).
    constexpr int KEYS = sizeof(T) == 4 || (PLAIN<T> && D > 96) ? 32 : 64;
    constexpr int ROW = D + PAD<T>;                        // of Q, K and the result
    constexpr int V_ROW = Tile::ROWS_LOAD ? ROW : KEYS + PAD<T>; // of V, or of V transposed
    constexpr int V_ROWS = Tile::ROWS_LOAD ? KEYS : D;
    constexpr int USED = KEYS * ROW + V_ROWS * V_ROW;
    constexpr int SIZE = USED > QUERIES * ROW ? USED : QUERIES * ROW;
    HIPVIT_LDS static Bytes16 memory[SIZE / PACK<T>];
    T *lds = reinterpret_cast<T *>(memory), *lds_v = lds + KEYS * ROW;

    const u32 tiles = (a.queries + QUERIES - 1) / QUERIES;
    const u32 head = block_index() / tiles % a.heads;
    const u64 image = block_index() / tiles / a.heads;
    const u32 first_query = block_index() % tiles * QUERIES;
    const u64 in_token = u64(head) * a.head_dim;
    const T *q = (const T *)a.q + image * a.q_image + in_token, *k = (const T *)a.k + image * a.k_image + in_token;
    const T *v = (const T *)a.v + image * a.v_image + in_token;
    T *out = (T *)a.out + image * a.out_image + in_token;
    const u8 *key_mask = a.visible.key_mask ? a.visible.key_mask + image * a.keys : nullptr;
    const bool whole = a.head_dim % PACK<T> == 0;
    auto vector = [&](const T *rows, u32 stride) { return whole && stride % PACK<T> == 0 && aligned(rows, 16); };
    auto row_write = [&](int row, int column, const Bytes16 &pack, const T(&)[PACK<T>]) {
        *reinterpret_cast<Bytes16 *>(lds + row * ROW + column) = pack;
    };

    stage<T, D, QUERIES>(q, a.q_token, first_query, a.queries, a.head_dim, vector(q, a.q_token), row_write);
    barrier();
    T *mine = lds + wave_index() * 16 * ROW;
    typename Tile::Y query[D / 16];
#pragma unroll
    for (int c = 0; c < D / 16; ++c) query[c] = Tile::load_y(mine + c * 16, ROW);

    typename Tile::Acc mixed[D / 16] = {};
    float top[Tile::COLUMNS], total[Tile::COLUMNS];
#pragma unroll
    for (int c = 0; c < Tile::COLUMNS; ++c) {
        top[c] = -infinity();
        total[c] = 0.0f;
    }
    const u32 last_query = (first_query + QUERIES < a.queries ? first_query + QUERIES : a.queries) - 1;
    // Every query of the block sees what its first and its last see.
    const KeyRange first_range(a.visible, first_query, a.keys), last_range(a.visible, last_query, a.keys);
    const u32 begin = first_range.first / KEYS * KEYS, end = last_range.end();
    KeyRange range[Tile::COLUMNS];
#pragma unroll
    for (int e = 0; e < Tile::VALUES; ++e)
        range[Tile::column(e)] = KeyRange(a.visible, first_query + wave_index() * 16 + Tile::of_lane(e).j, a.keys);
    const float factor = a.scale * 1.44269504f; // in powers of two
    const bool vector_k = vector(k, a.k_token), vector_v = vector(v, a.v_token);

    for (u32 start = begin; start < end; start += KEYS) {
        barrier(); // all have read what the LDS held
        stage<T, D, KEYS>(k, a.k_token, start, a.keys, a.head_dim, vector_k, row_write);
        stage<T, D, KEYS>(v, a.v_token, start, a.keys, a.head_dim, vector_v,
                          [&](int row, int column, const Bytes16 &pack, const T(&element)[PACK<T>]) {
                              if constexpr (Tile::ROWS_LOAD) {
                                  *reinterpret_cast<Bytes16 *>(lds_v + row * V_ROW + column) = pack;
                              } else {
#pragma unroll
                                  for (u32 i = 0; i < PACK<T>; ++i) lds_v[(column + i) * V_ROW + row] = element[i];
                              }
                          });
        barrier();

        typename Tile::Acc score[KEYS / 16] = {};
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
                Tile::multiply(score[t], Tile::load_x(lds + t * 16 * ROW + c * 16, ROW), query[c]);
                if (c % 4 == 3) schedule_fence();
            }
            schedule_fence();
        }

#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) score[t].value[e] *= factor;
        }
        // Selects, not branches: a branch an element would keep the compiler from scheduling what is around.
        if (start < last_range.first || start + KEYS > first_range.end()) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    const bool seen = range[Tile::column(e)].contains(start + t * 16 + Tile::of_lane(e).i);
                    score[t].value[e] = seen ? score[t].value[e] : -infinity();
                }
            }
        }
        if (key_mask) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    const u32 key = start + t * 16 + Tile::of_lane(e).i;
                    const u8 seen = key_mask[key < a.keys ? key : a.keys - 1];
                    score[t].value[e] = seen ? score[t].value[e] : -infinity();
                }
            }
        }
        float highest[Tile::COLUMNS];
#pragma unroll
        for (int c = 0; c < Tile::COLUMNS; ++c) highest[c] = -infinity();
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                highest[Tile::column(e)] = larger(highest[Tile::column(e)], score[t].value[e]);
            }
        }

        float base[Tile::COLUMNS], shrink[Tile::COLUMNS];
#pragma unroll
        for (int c = 0; c < Tile::COLUMNS; ++c) {
            highest[c] = larger(top[c], Tile::template reduce_column<Max>(highest[c]));
            base[c] = highest[c] == -infinity() ? 0.0f : highest[c]; // no key yet: 2^(−∞ − 0) is 0
            shrink[c] = fast_exp2(top[c] - base[c]);
            top[c] = highest[c];
            total[c] *= shrink[c];
        }
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) mixed[c].value[e] *= shrink[Tile::column(e)];
        }
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                float &s = score[t].value[e];
                s = fast_exp2(s - base[Tile::column(e)]);
                total[Tile::column(e)] += s;
            }
            const typename Tile::Y weights = Tile::as_y(score[t]);
            schedule_fence();
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
                if constexpr (Tile::ROWS_LOAD) {
                    Tile::multiply(mixed[c], Tile::load_x_rows(lds_v + t * 16 * V_ROW + c * 16, V_ROW), weights);
                } else {
                    Tile::multiply(mixed[c], Tile::load_x(lds_v + c * 16 * V_ROW + t * 16, V_ROW), weights);
                }
                if (c % 4 == 3) schedule_fence();
            }
        }
    }

    float inverse[Tile::COLUMNS];
#pragma unroll
    for (int c = 0; c < Tile::COLUMNS; ++c) {
        const float sum = Tile::template reduce_column<Sum>(total[c]);
        inverse[c] = sum > 0.0f ? 1.0f / sum : sum; // 0 stays 0, NaN stays NaN
    }
    barrier();
#pragma unroll
    for (int c = 0; c < D / 16; ++c) {
#pragma unroll
        for (int e = 0; e < Tile::VALUES; ++e) {
            const Place at = Tile::of_lane(e);
            mine[at.j * ROW + c * 16 + at.i] = from_float<T>(mixed[c].value[e] * inverse[Tile::column(e)]);
        }
    }
    barrier();
    constexpr int PER_ROW = D / PACK<T>;
    const bool vector_out = vector(out, a.out_token);
    for (int at = int(thread_index()); at < QUERIES * PER_ROW; at += THREADS) {
        const u32 row = at / PER_ROW, column = at % PER_ROW * PACK<T>;
        if (first_query + row >= a.queries || column >= a.head_dim) continue;
        const T *from = lds + row * ROW + column;
        T *to = out + u64(first_query + row) * a.out_token + column;
        if (vector_out) {
            *reinterpret_cast<Bytes16 *>(to) = *reinterpret_cast<const Bytes16 *>(from);
        } else {
#pragma unroll
            for (u32 i = 0; i < PACK<T>; ++i)
                if (column + i < a.head_dim) to[i] = from[i];
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
ATTENTION(32)
ATTENTION(64)
ATTENTION(80)
ATTENTION(96)
ATTENTION(128)
#endif
