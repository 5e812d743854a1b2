// Matrix cores on signed bytes. A wave computes D[i][j] += Σk W[i][k] · X[j][k] for 16 values each of i and j and 32 of k, accumulating in
// i32.
//
//   Int8Mma::W, X            fragments of 16 rows of 32 bytes from LDS with the layout Rows, from w_at<Rows>() or x_at<Rows>() on
//   Acc                      VALUES elements of D per lane, with the i and j that of_lane(e) returns
//
//   MFMA 16×16×32            gfx942, gfx950
//   MFMA 16×16×16, ×2        gfx908, gfx90a
//   WMMA 16×16×16, ×2        gfx11, gfx12
//   mma.sync m16n8k32, ×2    sm_80 and later
#pragma once
#include "mma.hpp"

#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__) || defined(__GFX11__) ||                \
    defined(__GFX12__) || defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HIPVIT_INT8_MMA 1

namespace hipvit {

#if HIPVIT_AMD

struct Int8Mma {
    static constexpr int VALUES = 256 / WAVE;
    struct Acc {
        int value[VALUES];
    };
#if defined(__GFX11__)
    // Each lane has all k of its row, and lanes 16–31 the same as lanes 0–15.
    static constexpr int WORDS = 8, PART = 0;
    static HIPVIT_DEVICE Element of_lane(int e) { return {2 * e + lane_index() / 16, lane_index() % 16}; }
#else
    // Each group of 16 lanes has an equal part of the 32 bytes, adjacent ones. The order of k does not matter to the sum.
    static constexpr int WORDS = 8 * 16 / WAVE, PART = 4 * WORDS;
    static HIPVIT_DEVICE Element of_lane(int e) { return {lane_index() / 16 * VALUES + e, lane_index() % 16}; }
#endif
    struct alignas(WORDS < 4 ? 8 : 16) W {
        u32 word[WORDS];
    };
    using X = W;

    template <class Rows> static HIPVIT_DEVICE u32 w_at() { return Rows::at(lane_index() % 16, lane_index() / 16 * PART); }
    template <class Rows> static HIPVIT_DEVICE u32 x_at() { return w_at<Rows>(); }
    template <class Rows> static HIPVIT_DEVICE W load_w(const u8 *lds, u32 at) {
        constexpr int ADJACENT = WORDS < 4 ? WORDS : 4;
        struct alignas(4 * ADJACENT) Words {
            u32 word[ADJACENT];
        };
        W w;
#pragma unroll
        for (int v = 0; v < WORDS / ADJACENT; ++v) {
            const Words words = *reinterpret_cast<const Words *>(lds + Rows::shifted(at, v * 16));
#pragma unroll
            for (int i = 0; i < ADJACENT; ++i) w.word[v * ADJACENT + i] = words.word[i];
        }
        return w;
    }
    template <class Rows> static HIPVIT_DEVICE X load_x(const u8 *lds, u32 at) { return load_w<Rows>(lds, at); }

    static HIPVIT_DEVICE void multiply(Acc &acc, const W &w, const X &x) {
        using i32x2 = int __attribute__((ext_vector_type(2)));
        using i32x4 = int __attribute__((ext_vector_type(4)));
        using Sums = int __attribute__((ext_vector_type(VALUES)));
        Sums d = __builtin_bit_cast(Sums, acc);
#if defined(__gfx942__) || defined(__gfx950__)
        d = __builtin_amdgcn_mfma_i32_16x16x32_i8(__builtin_bit_cast(long, w), __builtin_bit_cast(long, x), d, 0, 0, 0);
#else
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const u32 *const a = w.word + half * (WORDS / 2), *const b = x.word + half * (WORDS / 2);
#if defined(__GFX12__)
            d = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, i32x2{int(a[0]), int(a[1])}, true,
                                                                 i32x2{int(b[0]), int(b[1])}, d, false);
#elif defined(__GFX11__)
            d = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, i32x4{int(a[0]), int(a[1]), int(a[2]), int(a[3])}, true,
                                                           i32x4{int(b[0]), int(b[1]), int(b[2]), int(b[3])}, d, false);
#else
            d = __builtin_amdgcn_mfma_i32_16x16x16i8(int(a[0]), int(b[0]), d, 0, 0, 0);
#endif
        }
#endif
        acc = __builtin_bit_cast(Acc, d);
    }
};

#else

// W is the instruction's A (16×32), X its B (32×8), twice: for j in 0–7 and in 8–15. A pair of bytes is loaded like an f16.
struct Int8Mma {
    static constexpr int VALUES = 8;
    struct Acc {
        int value[VALUES];
    };
    using W = Vec128;
    using X = Vec128;
    static HIPVIT_DEVICE Element of_lane(int e) {
        const int lane = lane_index();
        return {lane / 4 + e / 2 % 2 * 8, lane % 4 * 2 + e % 2 + e / 4 * 8};
    }
    template <class Rows> static HIPVIT_DEVICE u32 w_at() { return Rows::at(lane_index() % 16, lane_index() / 16 * 16); }
    template <class Rows> static HIPVIT_DEVICE u32 x_at() {
        const int lane = lane_index();
        return Rows::at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 16);
    }
    template <class Rows> static HIPVIT_DEVICE W load_w(const u8 *lds, u32 at) {
        return Mma<f16>::load(reinterpret_cast<const f16 *>(lds + at));
    }
    template <class Rows> static HIPVIT_DEVICE X load_x(const u8 *lds, u32 at) { return load_w<Rows>(lds, at); }
    static HIPVIT_DEVICE void multiply(Acc &acc, const W &w, const X &x) {
        instruction(acc.value, w, x.word[0], x.word[1]);
        instruction(acc.value + 4, w, x.word[2], x.word[3]);
    }

  private:
    static HIPVIT_DEVICE void instruction(int *d, const Vec128 &a, u32 b0, u32 b1) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b0), "r"(b1));
    }
};

#endif

} // namespace hipvit

#endif
