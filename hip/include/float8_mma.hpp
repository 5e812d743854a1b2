// Matrix cores on E4M3 (float8.hpp), for attention. A wave computes D[i][j] += Σk X[i][k] · Y[j][k] for 16 values each of i and j and 32
// of k, accumulating in f32: S = K·Qᵀ (i a key, j a query), then Vᵀ·Pᵀ (i a channel), as in mma.hpp.
//
//   Float8Mma::Acc          VALUES elements of D per lane, with the i and j that of_lane(e) returns
//   COLUMNS, column(e), reduce_column<Op>(x)   as in mma.hpp
//   gather_y<N>(y, row, d)  d of 32 · N bytes of a row per j in global memory as Y, and zeros; row(j) is where it begins, aligned to 16
//                           bytes, of which d is a multiple
//   Keys<D, COUNT, THREADS> a tile of COUNT keys: K and V to registers, to LDS, and from there as X of 32 channels of 16 keys, and
//                           of 32 keys of 16 channels, which is multiplied by P
//   as_p(a, b)              two D of S, of 32 keys, as the Y of Vᵀ·Pᵀ
//   channel(), element(column, n)  of O a lane has adjacent channels of a query, from channel() of 16 on: the nth is that element
//   P_LOG2                  P should be at most 2 to this
//   UNIT                    what a byte in LDS or registers is a multiple of, as the matrix cores read it
//
//   MFMA 16×16×32, E4M3         gfx942, gfx950
//   WMMA 16×16×16, E4M3, ×2     gfx12
//   mma.sync m16n8k16, f16, ×4  sm_89 and later: K and V become f16 on their way to LDS, P is f16. ptxas for sm_90 makes the same of
//                               mma.sync m16n8k32 on E4M3, but converts each fragment anew
#pragma once
#include "async_copy.hpp"
#include "float8.hpp"
#include "mma.hpp"
#include "staged_copy.hpp"

#if defined(__gfx942__) || defined(__gfx950__) || defined(__GFX12__) || defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define HIPVIT_FLOAT8_MMA 1

namespace hipvit {

#if HIPVIT_AMD

// The bytes of two words of which `SELECT` names four, those of `low` by 0 to 3.
template <u32 SELECT> HIPVIT_DEVICE u32 select_bytes(u32 high, u32 low) {
    return u32(__builtin_amdgcn_perm(high, low, SELECT));
}

struct Float8Mma : GroupedLayout {
    // Each group of 16 lanes has as many adjacent bytes of 32.
    static constexpr int WORDS = VALUES / 2;
    struct alignas(4 * WORDS) X {
        u32 word[WORDS];
    };
    using Y = X;
    // Each group has the VALUES keys of either 16 that it has scores of.
    using V = X;
    using P = X;
#if defined(__gfx942__)
    static constexpr float UNIT = 2.0f, P_LOG2 = 7.0f; // the largest number of FNUZ is 240
#else
    static constexpr float UNIT = 1.0f, P_LOG2 = 8.0f;
#endif
    static constexpr bool LAZY = false; // P has few bits below its largest
    static HIPVIT_DEVICE int channel() { return part(); }
    static HIPVIT_DEVICE constexpr int element(int, int n) { return n; }

    template <int N, class Row> static HIPVIT_DEVICE void gather_y(Y (&y)[N], const Row &row_of, u32 d) {
        const u32 first = lane_index() / 16 * sizeof(Y);
        const u8 *const from = row_of(row()) + first;
#pragma unroll
        for (int c = 0; c < N; ++c) y[c] = c * 32 + first < d ? *reinterpret_cast<const Y *>(from + c * 32) : Y{};
    }

    static HIPVIT_DEVICE P as_p(const Acc &a, const Acc &b) {
        P p;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            const float *const x = (w < WORDS / 2 ? a : b).value + w % (WORDS / 2) * 4;
            const int low = __builtin_amdgcn_cvt_pk_fp8_f32(x[0], x[1], 0, false);
            p.word[w] = u32(__builtin_amdgcn_cvt_pk_fp8_f32(x[2], x[3], low, true));
        }
        return p;
    }

    static HIPVIT_DEVICE void multiply(Acc &acc, const X &x, const Y &y) {
#if defined(__GFX12__)
        using words = int __attribute__((ext_vector_type(2)));
        f32x8 d = __builtin_bit_cast(f32x8, acc);
#pragma unroll
        for (int w = 0; w < WORDS; w += 2)
            d = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(words{int(x.word[w]), int(x.word[w + 1])},
                                                                     words{int(y.word[w]), int(y.word[w + 1])}, d);
        acc = __builtin_bit_cast(Acc, d);
#else
        const f32x4 d = __builtin_bit_cast(f32x4, acc);
        acc = __builtin_bit_cast(Acc, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(__builtin_bit_cast(long, x),
                                                                                 __builtin_bit_cast(long, y), d, 0, 0, 0));
#endif
    }

    // V is transposed, four keys by four channels at a time, so that 32 keys of a channel are adjacent.
    template <int D, int COUNT, int THREADS> struct Keys {
        // Rows are longer than their contents, so that they start in different banks.
        static constexpr int K_ROW = D + 16, V_ROW = COUNT + 8, V_AT = COUNT * K_ROW, BYTES = V_AT + D * V_ROW;
        using StagedK = Staged<u8, D, COUNT, D / 16, THREADS>;
        static constexpr int QUADS = COUNT * D / 16, PASSES = (QUADS + THREADS - 1) / THREADS;
        StagedK staged_k;
        u32 staged_v[PASSES][4]; // of four keys

        // The lanes of a wave that store to adjacent words have different keys.
        static HIPVIT_DEVICE int key_of(int quad) { return quad % (COUNT / 4) * 4; }
        static HIPVIT_DEVICE int channel_of(int quad) { return quad / (COUNT / 4) * 4; }

        HIPVIT_DEVICE void load(const u8 *k, const u8 *v, u32 k_token, u32 v_token, u32 start, u32 keys, u32 d) {
            staged_k.load_all(k, k_token, start, keys, d, true);
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                const int quad = int(thread_index()) + p * THREADS, channel = channel_of(quad);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const u32 key = start + key_of(quad) + i;
                    const bool exists = key < keys && u32(channel) < d && (QUADS % THREADS == 0 || quad < QUADS);
                    staged_v[p][i] = exists ? *reinterpret_cast<const u32 *>(v + u64(key) * v_token + channel) : 0;
                }
            }
        }
        HIPVIT_DEVICE void store(u8 *lds) const {
            staged_k.store([&](int row, int column, const Vec<u8> &vec) {
                *reinterpret_cast<Vec128 *>(lds + row * K_ROW + column) = vec.whole;
            });
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                const int quad = int(thread_index()) + p * THREADS;
                if (QUADS % THREADS != 0 && quad >= QUADS) continue;
                u8 *const to = lds + V_AT + channel_of(quad) * V_ROW + key_of(quad);
                const u32 *const of_key = staged_v[p];
                // Bytes 0 and 1, then 2 and 3, of the first two keys and of the other two.
                const u32 low[2] = {select_bytes<0x05010400>(of_key[1], of_key[0]), select_bytes<0x05010400>(of_key[3], of_key[2])};
                const u32 high[2] = {select_bytes<0x07030602>(of_key[1], of_key[0]), select_bytes<0x07030602>(of_key[3], of_key[2])};
                const u32 of_channel[4] = {select_bytes<0x05040100>(low[1], low[0]), select_bytes<0x07060302>(low[1], low[0]),
                                           select_bytes<0x05040100>(high[1], high[0]), select_bytes<0x07060302>(high[1], high[0])};
#pragma unroll
                for (int i = 0; i < 4; ++i) *reinterpret_cast<u32 *>(to + i * V_ROW) = of_channel[i];
            }
        }
        static HIPVIT_DEVICE X load_k(const u8 *lds, int t, int c) {
            return *reinterpret_cast<const X *>(lds + (t * 16 + row()) * K_ROW + c * 32 + lane_index() / 16 * sizeof(X));
        }
        static HIPVIT_DEVICE V load_v(const u8 *lds, int u, int c) {
            struct alignas(VALUES) Half {
                u32 word[WORDS / 2];
            };
            const u8 *const from = lds + V_AT + (c * 16 + row()) * V_ROW + u * 32 + part();
            V v;
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const Half half = *reinterpret_cast<const Half *>(from + h * 16);
#pragma unroll
                for (int w = 0; w < WORDS / 2; ++w) v.word[h * (WORDS / 2) + w] = half.word[w];
            }
            return v;
        }
    };
};

#else

// Two bytes of E4M3, the lower or the upper half of a word, as two f16.
HIPVIT_DEVICE u32 float8_as_f16(u32 word, bool upper) {
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(u16(upper ? word >> 16 : word)));
    return pair;
}

struct Float8Mma : Mma<f16> {
    using Half = Mma<f16>;
    // 16 of k each.
    struct X {
        Vec128 half[2];
    };
    using Y = X;
    using V = X;
    using P = X;
    static constexpr float UNIT = 1.0f, P_LOG2 = 0.0f;
    static constexpr bool LAZY = true;
    static HIPVIT_DEVICE int channel() { return lane_index() % 4 * 4; }
    static HIPVIT_DEVICE constexpr int element(int column, int n) { return 2 * column + n % 2 + n / 2 * 4; }

    template <int N, class Row> static HIPVIT_DEVICE void gather_y(Y (&y)[N], const Row &row_of, u32 d) {
        const int lane = lane_index();
        const u8 *const low = row_of(lane / 4) + lane % 4 * 2, *const high = row_of(lane / 4 + 8) + lane % 4 * 2;
        const auto pair = [](const u8 *from) { return float8_as_f16(*reinterpret_cast<const u16 *>(from), false); };
#pragma unroll
        for (int c = 0; c < 2 * N; ++c) {
            Vec128 &half = y[c / 2].half[c % 2];
            half = {{0, 0, 0, 0}};
            if (u32(c * 16) < d)
                half = {{pair(low + c * 16), pair(high + c * 16), pair(low + c * 16 + 8), pair(high + c * 16 + 8)}};
        }
    }
    static HIPVIT_DEVICE P as_p(const Acc &a, const Acc &b) { return {{Half::as_y(a), Half::as_y(b)}}; }
    static HIPVIT_DEVICE void multiply(Acc &acc, const X &x, const Y &y) {
        Half::multiply(acc, x.half[0], y.half[0]);
        Half::multiply(acc, x.half[1], y.half[1]);
    }

    template <int D, int COUNT, int THREADS> struct Keys {
        using Rows = LdsRows<f16, D>;
        static constexpr int V_AT = COUNT * Rows::PITCH * 2, BYTES = 2 * V_AT;
        using Copy = Staged<u8, D, COUNT, D / 16, THREADS>;
        Copy staged_k, staged_v;

        HIPVIT_DEVICE void load(const u8 *k, const u8 *v, u32 k_token, u32 v_token, u32 start, u32 keys, u32 d) {
            staged_k.load_all(k, k_token, start, keys, d, true);
            staged_v.load_all(v, v_token, start, keys, d, true);
        }
        HIPVIT_DEVICE void store(u8 *lds) const {
            f16 *const k = reinterpret_cast<f16 *>(lds), *const v = reinterpret_cast<f16 *>(lds + V_AT);
            staged_k.store([&](int row, int column, const Vec<u8> &vec) {
                Vec128 elements[2];
#pragma unroll
                for (int w = 0; w < 8; ++w) elements[w / 4].word[w % 4] = float8_as_f16(vec.whole.word[w / 2], w % 2 == 1);
                write(k, row, column, elements);
            });
            staged_v.store([&](int row, int column, const Vec<u8> &vec) {
                // Four adjacent channels are where a lane has them of O: two are 8 apart.
                Vec128 elements[2];
#pragma unroll
                for (int w = 0; w < 8; ++w) elements[w % 2].word[w / 2] = float8_as_f16(vec.whole.word[w / 2], w % 2 == 1);
                write(v, row, column, elements);
            });
        }
        static HIPVIT_DEVICE void write(f16 *to, int row, int column, const Vec128 (&elements)[2]) {
            *reinterpret_cast<Vec128 *>(to + Rows::at(row, column)) = elements[0];
            *reinterpret_cast<Vec128 *>(to + Rows::at(row, column + 8)) = elements[1];
        }
        static HIPVIT_DEVICE X load_k(const u8 *lds, int t, int c) {
            const f16 *const from = reinterpret_cast<const f16 *>(lds) + t * 16 * Rows::PITCH;
            const u32 at = Half::template x_element<Rows>();
            return {{Half::load(from + Rows::shifted(at, c * 32)), Half::load(from + Rows::shifted(at, c * 32 + 16))}};
        }
        static HIPVIT_DEVICE V load_v(const u8 *lds, int u, int c) {
            const f16 *const from = reinterpret_cast<const f16 *>(lds + V_AT) + u * 32 * Rows::PITCH;
            const u32 at = Rows::shifted(Half::template x_rows_element<Rows>(), c * 16);
            return {{Half::load_transposed(from + at), Half::load_transposed(from + 16 * Rows::PITCH + at)}};
        }
    };
};

#endif

} // namespace hipvit

#endif
