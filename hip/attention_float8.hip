// attention_float8: out = softmax(scale · Q·Kᵀ) · V · value_scale of operands in E4M3, in one pass over the keys, by an online softmax
// on matrix cores.
//
// Shapes: q bytes [B, Nq, H · d]; k, v bytes [B, Nk, H · d]; out T [B, Nq, H · d], or bytes, E4M3; by strides, so that packed QKV is read
//   where it is. Any Nq and Nk, d a multiple of 16; attention_<D>_float8_T takes heads of d ≤ D channels. Every key is visible.
// Alignment: attention_float8.h.
// Accumulators: f32 for S = Q·Kᵀ, the row sums and O. P is E4M3, times a power of two by which the largest of a row is 128 or 256, or where
//   float8_mma.hpp says so f16.
// Geometry: that of attention.hip. Tiles of K and V are in LDS twice: one is worked on while the next one is copied, through registers.
// Matrix cores: those of float8_mma.hpp; on other architectures there are no entries.
#include "attention_float8.h"
#include "attention.h"
#include "float8_mma.hpp"

using namespace hipvit;

#if HIPVIT_FLOAT8_MMA

template <class T, int D> struct Float8Attention {
    using Tile = Float8Mma;
#if HIPVIT_AMD
    static constexpr int WAVES = 4, GROUPS = WAVE == 64 ? 2 : 1, KEYS = D <= 64 ? 64 : 32, BLOCKS = 0;
#else
    // For [64, 12, 197, 64] and [4, 16, 1025, 64] {4, 4 blocks, 32 keys} takes 58 and 96 µs, {4, 3, 64} 62 and 86, {8, 2, 64} 62 and 98
    // (H200, CUDA 13.0, bf16, E4M3 written).
    static constexpr int WAVES = 4, GROUPS = 1, KEYS = 32, BLOCKS = D <= 64 ? 4 : 3;
#endif
    static constexpr int THREADS = WAVES * WAVE, GROUP = WAVES * 16, QUERIES = GROUPS * GROUP;
    static constexpr int COLUMNS = GROUPS * Tile::COLUMNS;
    using Keys = typename Tile::template Keys<D, KEYS, THREADS>;
    static constexpr int LDS_VECS = 2 * ((Keys::BYTES + 15) / 16);

    const AttentionFloat8Args &a;
    u8 *const lds;
    const u32 image, head, first_query;
    const float scale_log2;

    typename Tile::Y q_fragment[GROUPS][D / 32];
    typename Tile::Acc acc_o[GROUPS][D / 16] = {};
    float row_max[COLUMNS], row_sum[COLUMNS];

    HIPVIT_DEVICE Float8Attention(const AttentionFloat8Args &a, Vec128 *memory, u32 image, u32 head, u32 first_query)
        : a(a), lds(reinterpret_cast<u8 *>(memory)), image(image), head(head), first_query(first_query),
          scale_log2(a.scale * (1.44269504f * Tile::UNIT * Tile::UNIT)) {
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) row_max[c] = -infinity(), row_sum[c] = 0.0f;
    }

    HIPVIT_DEVICE const u8 *of_head(const void *from, u64 of_image) const {
        return (const u8 *)from + image * of_image + u64(head) * a.head_dim;
    }
    HIPVIT_DEVICE u32 query_of(int group, int j) const { return first_query + group * GROUP + wave_index() * 16 + j; }

    HIPVIT_DEVICE void load_q() {
        const u8 *const q = of_head(a.q, a.q_image);
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            const auto row = [&](int j) {
                const u32 query = query_of(g, j);
                return q + u64(query < a.queries ? query : a.queries - 1) * a.q_token;
            };
            Tile::gather_y(q_fragment[g], row, a.head_dim);
        }
    }

    // Updates the row maxima, and rescales the row sums and O to them. A maximum that grows little is left as it is where P may be that
    // much larger.
    template <bool WHOLE, class Scores> HIPVIT_DEVICE void online_softmax(const Scores &acc_s, u32 keys) {
        float tile_max[COLUMNS];
        bool grow = !Tile::LAZY;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) tile_max[c] = -infinity();
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                if (!WHOLE && u32(t * 16) >= keys) break;
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    float &largest = tile_max[g * Tile::COLUMNS + Tile::column(e)];
                    largest = larger(largest, acc_s[g][t].value[e]);
                }
            }
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            tile_max[c] = larger(row_max[c], Tile::template reduce_column<Max>(tile_max[c]) * scale_log2);
            if (tile_max[c] > row_max[c] + 8.0f) grow = true;
        }
        if (Tile::LAZY && !any_lane(grow)) return;
        float rescale[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            rescale[c] = fast_exp2(row_max[c] - tile_max[c]);
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

    // S of a tile of `keys` keys, P, and its part of O. WHOLE: of all that a tile may have; otherwise what is beyond the last key is
    // skipped, 16 keys at a time.
    template <bool WHOLE> HIPVIT_DEVICE void step(const u8 *tile, u32 keys) {
        typename Tile::Acc acc_s[GROUPS][KEYS / 16] = {};
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
            if (!WHOLE && u32(t * 16) >= keys) break;
#pragma unroll
            for (int c = 0; c < D / 32; ++c) {
                const auto fragment = Keys::load_k(tile, t, c);
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) Tile::multiply(acc_s[g][t], fragment, q_fragment[g][c]);
            }
            if constexpr (!WHOLE) {
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                    for (int e = 0; e < Tile::VALUES; ++e) {
                        float &s = acc_s[g][t].value[e];
                        s = u32(t * 16 + Tile::of_lane(e).i) < keys ? s : -infinity();
                    }
                }
            }
            schedule_fence();
        }
        online_softmax<WHOLE>(acc_s, keys);
        schedule_fence();
#pragma unroll
        for (int u = 0; u < KEYS / 32; ++u) {
            if (!WHOLE && u32(u * 32) >= keys) break;
            typename Tile::P p[GROUPS];
#pragma unroll
            for (int t = 2 * u; t < 2 * u + 2; ++t) {
                if (!WHOLE && u32(t * 16) >= keys) break; // its P is 0, as S was
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                    for (int e = 0; e < Tile::VALUES; ++e) {
                        const int column = g * Tile::COLUMNS + Tile::column(e);
                        float &s = acc_s[g][t].value[e];
                        s = fast_exp2(multiply_add(s, scale_log2, Tile::P_LOG2 - row_max[column]));
                        row_sum[column] += s;
                    }
                }
            }
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) p[g] = Tile::as_p(acc_s[g][2 * u], acc_s[g][2 * u + 1]);
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
                const auto fragment = Keys::load_v(tile, u, c);
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) Tile::multiply(acc_o[g][c], fragment, p[g]);
            }
            schedule_fence();
        }
    }

    HIPVIT_DEVICE void run() {
        const u8 *const k = of_head(a.k, a.k_image), *const v = of_head(a.v, a.v_image);
        Keys next;
        const auto load = [&](u32 start) { next.load(k, v, a.k_token, a.v_token, start, a.keys, a.head_dim); };
        load(0);
        load_q();
        u32 half = 0;
        for (u32 start = 0; start < a.keys; start += KEYS) {
            u8 *const tile = lds + half * (LDS_VECS / 2) * 16;
            next.store(tile); // its previous keys were worked on before the last barrier
            if (start + KEYS < a.keys) load(start + KEYS);
            barrier();
            if (query_of(0, 0) < a.queries) {
                if (start + KEYS <= a.keys) {
                    step<true>(tile, KEYS);
                } else {
                    step<false>(tile, a.keys - start);
                }
            }
            half ^= 1;
        }
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) store(g);
    }

    // A lane has the same adjacent channels of each 16, of Tile::COLUMNS queries.
    HIPVIT_DEVICE void store(int g) const {
        constexpr int ADJACENT = Tile::VALUES / Tile::COLUMNS;
        const u64 out = image * a.out_image + u64(head) * a.head_dim;
#pragma unroll
        for (int column = 0; column < Tile::COLUMNS; ++column) {
            const float sum = Tile::template reduce_column<Sum>(row_sum[g * Tile::COLUMNS + column]);
            const float inverse = a.value_scale * Tile::UNIT / sum;
            int first = 0; // element of the column
            while (Tile::column(first) != column) ++first;
            const u32 query = query_of(g, Tile::of_lane(first).j);
            if (query >= a.queries) continue;
            const u64 at = out + u64(query) * a.out_token;
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
                if (u32(c * 16) >= a.head_dim) break;
                float x[ADJACENT];
#pragma unroll
                for (int i = 0; i < ADJACENT; ++i)
                    x[i] = to_float(from_float<T>(acc_o[g][c].value[Tile::element(column, i)] * inverse));
                const u64 element = at + c * 16 + Tile::channel();
                if (a.float8_factor != 0.0f) {
                    store_float8((u8 *)a.out + element, ADJACENT, true, a.float8_factor, x);
                } else {
                    store_adjacent((T *)a.out + element, x);
                }
            }
        }
    }

    template <int N> static HIPVIT_DEVICE void store_adjacent(T *to, const float (&x)[N]) {
        struct alignas(N * sizeof(T)) Adjacent {
            T element[N];
        } adjacent;
#pragma unroll
        for (int i = 0; i < N; ++i) adjacent.element[i] = from_float<T>(x[i]);
        *reinterpret_cast<Adjacent *>(to) = adjacent;
    }
};

template <class T, int D> HIPVIT_DEVICE void attention_float8(const AttentionFloat8Args &a) {
    using Block = Float8Attention<T, D>;
    HIPVIT_LDS static Vec128 memory[Block::LDS_VECS];
    const u32 tiles = (a.queries + Block::QUERIES - 1) / Block::QUERIES;
    const u32 head = block_index() / tiles % a.heads;
    const u32 image = block_index() / tiles / a.heads;
    if (image >= a.images) return;
    Block(a, memory, image, head, block_index() % tiles * Block::QUERIES).run();
}

// On CDNA clang takes registers that cost a wave of a SIMD, if it may.
template <int D> HIPVIT_DEVICE constexpr int least_waves() { return WAVE == 32 ? 1 : D <= 64 ? 3 : 2; }

// Of 16-bit types alone.
#define ENTRY_f32(D)
#define ENTRY_f16(D) KERNEL(D, f16)
#define ENTRY_bf16(D) KERNEL(D, bf16)
#define ENTRY(D, T) ENTRY_##T(D)
#define KERNEL(D, T)                                                                                                   \
    HIPVIT_KERNEL_BLOCKS((Float8Attention<T, D>::THREADS), (Float8Attention<T, D>::BLOCKS))                            \
    HIPVIT_WAVES((least_waves<D>())) attention_##D##_float8_##T(AttentionFloat8Args a) { attention_float8<T, D>(a); }                                   \
    HIPVIT_MODULE_GLOBAL(attention_##D##_float8_##T##_block,                                                           \
                         Float8Attention<T, D>::WAVES << ATTENTION_WAVES_SHIFT | Float8Attention<T, D>::QUERIES)
#define ENTRIES(D) HIPVIT_FOR_DTYPES(ENTRY, D)

// With HIPVIT_HEAD_DIM for one head size alone, which saves time where kernels are compiled at run time.
#ifdef HIPVIT_HEAD_DIM
ENTRIES(HIPVIT_HEAD_DIM)
#else
ENTRIES(32)
ENTRIES(64)
ENTRIES(96)
ENTRIES(128)
#endif

#endif
