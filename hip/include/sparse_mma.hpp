// Matrix cores that skip the zeros of 2:4 sparse operands. A wave computes D[i][j] += Σk W[i][k] · X[j][k] for 16 values each of i and j
// and 32 of k, accumulating in f32. W holds two of each four elements along k; indices give their places (sparse_gemm.h).
//
//   SparseMma<T>::W, X     fragments of T from LDS: W has 16 rows of 16 elements, X has 16 rows of 32; rows are aligned to 16 bytes
//   Acc                    VALUES elements of D per lane, with the i and j that of_lane(e) returns
//   Index                  a lane's indices of 16 rows of W for 64 k
//   multiply<STEP>         multiplies the first (STEP 0) or the second (STEP 1) 32 of those k
//
//   SMFMAC 16×16×32            gfx942, gfx950
//   mma.sp m16n8k32, ×2        sm_80 and later
#pragma once
#include "mma.hpp"

#if defined(__gfx942__) || defined(__gfx950__) || defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HIPVIT_SPARSE_MMA 1

namespace hipvit {

#if HIPVIT_AMD

template <class T> struct SparseMma {
    static constexpr int VALUES = 4;
    struct Acc {
        float value[VALUES];
    };
    using W = Vec64;
    using X = Vec128;
    using Index = u16;
    static HIPVIT_DEVICE Element of_lane(int e) { return {lane_index() / 16 * 4 + e, lane_index() % 16}; }
    static HIPVIT_DEVICE W load_w(const T *from, int stride) {
        return *reinterpret_cast<const W *>(from + lane_index() % 16 * stride + lane_index() / 16 * 4);
    }
    static HIPVIT_DEVICE X load_x(const T *from, int stride) {
        return *reinterpret_cast<const X *>(from + lane_index() % 16 * stride + lane_index() / 16 * 8);
    }
    template <int STEP> static HIPVIT_DEVICE void multiply(Acc &acc, const W &w, const X &x, Index index) {
        acc = __builtin_bit_cast(Acc, instruction<STEP>(T{}, w, x, __builtin_bit_cast(f32x4, acc), index));
    }

  private:
    using f16x4 = _Float16 __attribute__((ext_vector_type(4)));
    using f16x8 = _Float16 __attribute__((ext_vector_type(8)));
    using s16x4 = short __attribute__((ext_vector_type(4)));
    using s16x8 = short __attribute__((ext_vector_type(8)));
    template <int STEP> static HIPVIT_DEVICE f32x4 instruction(f16, const W &w, const X &x, f32x4 d, int index) {
        return __builtin_amdgcn_smfmac_f32_16x16x32_f16(__builtin_bit_cast(f16x4, w), __builtin_bit_cast(f16x8, x), d, index,
                                                        0, STEP);
    }
    template <int STEP> static HIPVIT_DEVICE f32x4 instruction(bf16, const W &w, const X &x, f32x4 d, int index) {
        return __builtin_amdgcn_smfmac_f32_16x16x32_bf16(__builtin_bit_cast(s16x4, w), __builtin_bit_cast(s16x8, x), d, index,
                                                         0, STEP);
    }
};

#else

// The qualifier (PTX ISA 8.5 and later) promises that the two places of each four are in ascending order.
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
#define HIPVIT_MMA_SP "mma.sp::ordered_metadata"
#else
#define HIPVIT_MMA_SP "mma.sp"
#endif

template <class T> struct SparseMma {
    static constexpr int VALUES = 8;
    struct Acc {
        float value[VALUES];
    };
    using W = Vec128;
    // For j in 0–7 and in 8–15.
    struct X {
        Vec128 half[2];
    };
    using Index = u32;
    static HIPVIT_DEVICE Element of_lane(int e) {
        const int lane = lane_index();
        return {lane / 4 + e / 2 % 2 * 8, lane % 4 * 2 + e % 2 + e / 4 * 8};
    }
    static HIPVIT_DEVICE W load_w(const T *from, int stride) { return Mma<T>::load_y(from, stride); }
    static HIPVIT_DEVICE X load_x(const T *from, int stride) {
        const T *const at = from + lane_index() % 8 * stride + lane_index() / 8 * 8;
        return {{Mma<T>::load(at), Mma<T>::load(at + 8 * stride)}};
    }
    template <int STEP> static HIPVIT_DEVICE void multiply(Acc &acc, const W &w, const X &x, Index index) {
        instruction<STEP>(T{}, acc.value, w, x.half[0], index);
        instruction<STEP>(T{}, acc.value + 4, w, x.half[1], index);
    }

  private:
    // STEP selects which lanes of each four provide the indices.
    template <int STEP> static HIPVIT_DEVICE void instruction(f16, float *d, const W &a, const Vec128 &b, u32 index) {
        asm(HIPVIT_MMA_SP ".sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
                          "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, %13;"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
              "r"(b.word[2]), "r"(b.word[3]), "r"(index), "n"(STEP));
    }
    template <int STEP> static HIPVIT_DEVICE void instruction(bf16, float *d, const W &a, const Vec128 &b, u32 index) {
        asm(HIPVIT_MMA_SP ".sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
                          "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, %13;"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
              "r"(b.word[2]), "r"(b.word[3]), "r"(index), "n"(STEP));
    }
};

#endif

} // namespace hipvit

#endif
