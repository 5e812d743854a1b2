// Matrix cores behind one tile. A wave computes D[i][j] += Σk X[i][k] · Y[j][k] for 16 values each of i, j and k, accumulating in f32.
// Every architecture distributes X, Y and D over the lanes in its own way, behind this interface:
//
//   Mma<T>::X, Y           fragments of T, from LDS: load_x, load_y where k is contiguous, load_x_rows where i is
//   Mma<T>::Acc            VALUES elements of D per lane, with the i and j that of_lane(e) returns
//   Mma<T>::as_y(acc)      D as the Y of a GEMM that sums over i: Y[j][k = i], rounded to T
//   COLUMNS, column(e)     number of different j of a lane, and which of them element e has
//   reduce_column<Op>(x)   the reduction over the lanes that share a j
//   ROWS_LOAD              whether load_x_rows is as fast as load_x; if not, transpose when storing to LDS
//   ALIGNED                load_x needs rows that start at multiples of this many elements
//   gather_x, gather_y     all N fragments of rows of 16 · N elements in global memory; of_row(i) is the address of row i, aligned to
//                          16 bytes. The order along k differs from LDS's, but is the same for X and Y. FMA does not have them.
//
// softmax(Q·Kᵀ)·V therefore moves no data across lanes: first D = K·Qᵀ (i is a key, j a query), then Vᵀ·Pᵀ (i is a channel).
//
//   MFMA 16×16×16           gfx908, gfx90a, gfx942, gfx950: f16, bf16; 16×16×4 for f32
//   WMMA 16×16×16           gfx11, gfx12: f16, bf16
//   mma.sync m16n8k16, ×2   sm_80 and later: f16, bf16
//   FMA                     everything else, from LDS
#pragma once
#include "vec128.hpp"
#include "wave.hpp"

namespace hipvit {

struct Element {
    int i, j;
};

// Packs two floats into a word of two 16-bit elements.
template <class T> HIPVIT_DEVICE u32 pair(float low, float high) {
    return u32(from_float<T>(low).bits) | u32(from_float<T>(high).bits) << 16;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> HIPVIT_DEVICE u32 pair<f16>(float low, float high) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
template <> HIPVIT_DEVICE u32 pair<bf16>(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
#endif

// Each lane of a group of 16 has one j, and each group has a contiguous part of the i. MFMA and gfx12's WMMA have this layout for D,
// and for X and Y with k instead of i; FMA has it too.
struct GroupedLayout {
    static constexpr int VALUES = 256 / WAVE;
    static constexpr int COLUMNS = 1;
    struct Acc {
        float value[VALUES];
    };
    static HIPVIT_DEVICE constexpr int column(int) { return 0; }
    static HIPVIT_DEVICE int row() { return lane_index() % 16; }
    static HIPVIT_DEVICE int part() { return lane_index() / 16 * VALUES; }
    static HIPVIT_DEVICE Element of_lane(int e) { return {part() + e, row()}; }
    template <class Op> static HIPVIT_DEVICE float reduce_column(float x) { return reduce_lanes<Op>(x, 16, WAVE / 2); }
};

// FMA. X stays in LDS and is read when it is multiplied; Y is distributed like D.
template <class T> struct FmaTile : GroupedLayout {
    static constexpr bool ROWS_LOAD = true;
    static constexpr int ALIGNED = 1;
    struct X {
        const T *from;
        int stride;
        bool rows;
    };
    struct Y {
        float value[VALUES];
    };
    static HIPVIT_DEVICE X load_x(const T *from, int stride) { return {from, stride, false}; }
    static HIPVIT_DEVICE X load_x_rows(const T *from, int stride) { return {from, stride, true}; }
    static HIPVIT_DEVICE Y load_y(const T *from, int stride) {
        Y y;
#pragma unroll
        for (int e = 0; e < VALUES; ++e) y.value[e] = to_float(from[row() * stride + part() + e]);
        return y;
    }
    static HIPVIT_DEVICE Y as_y(const Acc &acc) {
        Y y;
#pragma unroll
        for (int e = 0; e < VALUES; ++e) y.value[e] = to_float(from_float<T>(acc.value[e]));
        return y;
    }
    static HIPVIT_DEVICE void multiply(Acc &acc, const X &x, const Y &y) {
#pragma unroll 1
        for (int group = 0; group < WAVE / 16; ++group) {
#pragma unroll
            for (int e = 0; e < VALUES; ++e) {
                const float factor = read_lane(y.value[e], row() + 16 * group);
                const int k = group * VALUES + e;
#pragma unroll
                for (int i = 0; i < VALUES; ++i) {
                    const int at = x.rows ? k * x.stride + part() + i : (part() + i) * x.stride + k;
                    acc.value[i] = multiply_add(to_float(x.from[at]), factor, acc.value[i]);
                }
            }
        }
    }
};

template <class T> struct Mma : FmaTile<T> {};

#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)

using f32x4 = float __attribute__((ext_vector_type(4)));

template <class T> struct MfmaTile : GroupedLayout {
    static constexpr bool ROWS_LOAD = false;
    static constexpr int ALIGNED = VALUES;
    struct alignas(VALUES * sizeof(T)) X {
        u32 word[VALUES * sizeof(T) / 4];
    };
    using Y = X;
    static HIPVIT_DEVICE X load_x(const T *from, int stride) {
        return *reinterpret_cast<const X *>(from + row() * stride + part());
    }
    static HIPVIT_DEVICE Y load_y(const T *from, int stride) { return load_x(from, stride); }
    template <int N, class Row> static HIPVIT_DEVICE void gather_x(X (&x)[N], const Row &of_row) {
        const T *const from = of_row(row());
#pragma unroll
        for (int c = 0; c < N; ++c) x[c] = *reinterpret_cast<const X *>(from + c * 16 + part());
    }
    template <int N, class Row> static HIPVIT_DEVICE void gather_y(Y (&y)[N], const Row &of_row) { gather_x(y, of_row); }
    static HIPVIT_DEVICE X load_x_rows(const T *from, int stride) {
        union {
            X x;
            T element[VALUES];
        } u;
#pragma unroll
        for (int e = 0; e < VALUES; ++e) u.element[e] = from[(part() + e) * stride + row()];
        return u.x;
    }
    static HIPVIT_DEVICE Y as_y(const Acc &acc) {
        union {
            Y y;
            T element[VALUES];
        } u;
#pragma unroll
        for (int e = 0; e < VALUES; ++e) u.element[e] = from_float<T>(acc.value[e]);
        return u.y;
    }
    static HIPVIT_DEVICE void multiply(Acc &acc, const X &x, const Y &y) {
        f32x4 d = __builtin_bit_cast(f32x4, acc);
        if constexpr (sizeof(T) == 4) {
            // Each instruction takes one k from every group of lanes. The order of summation does not matter.
#pragma unroll
            for (int e = 0; e < VALUES; ++e)
                d = __builtin_amdgcn_mfma_f32_16x16x4f32(float_of(x.word[e]), float_of(y.word[e]), d, 0, 0, 0);
        } else {
            d = instruction(T{}, x, y, d);
        }
        acc = __builtin_bit_cast(Acc, d);
    }

  private:
    using f16x4 = _Float16 __attribute__((ext_vector_type(4)));
    using s16x4 = short __attribute__((ext_vector_type(4)));
    static HIPVIT_DEVICE f32x4 instruction(f16, const X &x, const Y &y, f32x4 d) {
        return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(f16x4, x), __builtin_bit_cast(f16x4, y), d, 0,
                                                     0, 0);
    }
    static HIPVIT_DEVICE f32x4 instruction(bf16, const X &x, const Y &y, f32x4 d) {
#ifdef __gfx908__
        // Multiplies two of each lane's four k at a time.
        using s16x2 = short __attribute__((ext_vector_type(2)));
#pragma unroll
        for (int w = 0; w < 2; ++w)
            d = __builtin_amdgcn_mfma_f32_16x16x8bf16(__builtin_bit_cast(s16x2, x.word[w]),
                                                      __builtin_bit_cast(s16x2, y.word[w]), d, 0, 0, 0);
        return d;
#else
        return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(s16x4, x), __builtin_bit_cast(s16x4, y), d,
                                                         0, 0, 0);
#endif
    }
};

template <> struct Mma<float> : MfmaTile<float> {};
template <> struct Mma<f16> : MfmaTile<f16> {};
template <> struct Mma<bf16> : MfmaTile<bf16> {};

#elif defined(__GFX12__)

using f32x8 = float __attribute__((ext_vector_type(8)));

template <class T> struct WmmaTile : GroupedLayout {
    static constexpr bool ROWS_LOAD = false;
    static constexpr int ALIGNED = 8;
    using X = Vec128;
    using Y = Vec128;
    static HIPVIT_DEVICE X load_x(const T *from, int stride) {
        return *reinterpret_cast<const X *>(from + row() * stride + part());
    }
    static HIPVIT_DEVICE Y load_y(const T *from, int stride) { return load_x(from, stride); }
    template <int N, class Row> static HIPVIT_DEVICE void gather_x(X (&x)[N], const Row &of_row) {
        const T *const from = of_row(row());
#pragma unroll
        for (int c = 0; c < N; ++c) x[c] = *reinterpret_cast<const X *>(from + c * 16 + part());
    }
    template <int N, class Row> static HIPVIT_DEVICE void gather_y(Y (&y)[N], const Row &of_row) { gather_x(y, of_row); }
    static HIPVIT_DEVICE X load_x_rows(const T *from, int stride) {
        X x;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const T *at = from + (part() + 2 * w) * stride + row();
            x.word[w] = u32(at[0].bits) | u32(at[stride].bits) << 16;
        }
        return x;
    }
    static HIPVIT_DEVICE Y as_y(const Acc &acc) {
        Y y;
#pragma unroll
        for (int w = 0; w < 4; ++w) y.word[w] = pair<T>(acc.value[2 * w], acc.value[2 * w + 1]);
        return y;
    }
    static HIPVIT_DEVICE void multiply(Acc &acc, const X &x, const Y &y) {
        acc = __builtin_bit_cast(Acc, instruction(T{}, x, y, __builtin_bit_cast(f32x8, acc)));
    }

  private:
    using f16x8 = _Float16 __attribute__((ext_vector_type(8)));
    using s16x8 = short __attribute__((ext_vector_type(8)));
    static HIPVIT_DEVICE f32x8 instruction(f16, const X &x, const Y &y, f32x8 d) {
        return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(f16x8, x),
                                                                __builtin_bit_cast(f16x8, y), d);
    }
    static HIPVIT_DEVICE f32x8 instruction(bf16, const X &x, const Y &y, f32x8 d) {
        return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(s16x8, x),
                                                                 __builtin_bit_cast(s16x8, y), d);
    }
};

template <> struct Mma<f16> : WmmaTile<f16> {};
template <> struct Mma<bf16> : WmmaTile<bf16> {};

#elif defined(__GFX11__)

using f32x8 = float __attribute__((ext_vector_type(8)));

// X and Y: a lane holds all k of its row, and lanes 16–31 repeat lanes 0–15. D: lanes 0–15 have the even i, lanes 16–31 the odd.
template <class T> struct WmmaTile {
    static constexpr bool ROWS_LOAD = false;
    static constexpr int ALIGNED = 8, VALUES = 8, COLUMNS = 1;
    struct Acc {
        float value[VALUES];
    };
    struct X {
        u32 word[8];
    };
    using Y = X;
    static HIPVIT_DEVICE constexpr int column(int) { return 0; }
    static HIPVIT_DEVICE int row() { return lane_index() % 16; }
    static HIPVIT_DEVICE Element of_lane(int e) { return {2 * e + lane_index() / 16, row()}; }
    template <class Op> static HIPVIT_DEVICE float reduce_column(float x) { return reduce_lanes<Op>(x, 16, 16); }

    static HIPVIT_DEVICE X load_x(const T *from, int stride) {
        const Vec128 *at = reinterpret_cast<const Vec128 *>(from + row() * stride);
        const Vec128 low = at[0], high = at[1];
        X x;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            x.word[w] = low.word[w];
            x.word[4 + w] = high.word[w];
        }
        return x;
    }
    static HIPVIT_DEVICE Y load_y(const T *from, int stride) { return load_x(from, stride); }
    template <int N, class Row> static HIPVIT_DEVICE void gather_x(X (&x)[N], const Row &of_row) {
        const T *const from = of_row(row());
#pragma unroll
        for (int c = 0; c < N; ++c) x[c] = load_x(from + c * 16, 0);
    }
    template <int N, class Row> static HIPVIT_DEVICE void gather_y(Y (&y)[N], const Row &of_row) { gather_x(y, of_row); }
    static HIPVIT_DEVICE X load_x_rows(const T *from, int stride) {
        X x;
#pragma unroll
        for (int w = 0; w < 8; ++w) {
            const T *at = from + 2 * w * stride + row();
            x.word[w] = u32(at[0].bits) | u32(at[stride].bits) << 16;
        }
        return x;
    }
    // A lane has every second i of its j; the lane whose index differs by 16 has the others.
    static HIPVIT_DEVICE Y as_y(const Acc &acc) {
        const bool odd = lane_index() >= 16;
        Y y;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const u32 mine = pair<T>(acc.value[2 * w], acc.value[2 * w + 1]);
            const u32 other = read_lane(mine, lane_index() ^ 16);
            const u32 even_i = odd ? other : mine, odd_i = odd ? mine : other;
            y.word[2 * w] = (even_i & 0xffff) | odd_i << 16;
            y.word[2 * w + 1] = even_i >> 16 | (odd_i & 0xffff0000);
        }
        return y;
    }
    static HIPVIT_DEVICE void multiply(Acc &acc, const X &x, const Y &y) {
        acc = __builtin_bit_cast(Acc, instruction(T{}, x, y, __builtin_bit_cast(f32x8, acc)));
    }

  private:
    using f16x16 = _Float16 __attribute__((ext_vector_type(16)));
    using s16x16 = short __attribute__((ext_vector_type(16)));
    static HIPVIT_DEVICE f32x8 instruction(f16, const X &x, const Y &y, f32x8 d) {
        return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(f16x16, x), __builtin_bit_cast(f16x16, y),
                                                          d);
    }
    static HIPVIT_DEVICE f32x8 instruction(bf16, const X &x, const Y &y, f32x8 d) {
        return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(s16x16, x),
                                                           __builtin_bit_cast(s16x16, y), d);
    }
};

template <> struct Mma<f16> : WmmaTile<f16> {};
template <> struct Mma<bf16> : WmmaTile<bf16> {};

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// Y is the instruction's A (16×16), X its B (16×8), twice: for i in 0–7 and in 8–15.
template <class T> struct SyncTile {
    static constexpr bool ROWS_LOAD = true;
    static constexpr int ALIGNED = 8, VALUES = 8, COLUMNS = 2;
    struct Acc {
        float value[VALUES];
    };
    using X = Vec128;
    using Y = Vec128;
    static HIPVIT_DEVICE constexpr int column(int e) { return e / 2 % 2; }
    static HIPVIT_DEVICE Element of_lane(int e) {
        return {lane_index() % 4 * 2 + e % 2 + e / 4 * 8, lane_index() / 4 + column(e) * 8};
    }
    template <class Op> static HIPVIT_DEVICE float reduce_column(float x) { return reduce_lanes<Op>(x, 1, 2); }

    // Four matrices of 8×8; each lane addresses one row of one of them.
    static HIPVIT_DEVICE X load_x(const T *from, int stride) {
        const int lane = lane_index();
        return load(from + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
    }
    static HIPVIT_DEVICE X load_x_rows(const T *from, int stride) {
        const int lane = lane_index();
        return load_transposed(from + lane % 16 * stride + lane / 16 * 8);
    }
    static HIPVIT_DEVICE Y load_y(const T *from, int stride) {
        const int lane = lane_index();
        return load(from + lane % 16 * stride + lane / 16 * 8);
    }
    // load_y of rows of `d` ≤ 16 · N elements in global memory, in the order of LDS. of_row(i) is the address of row i, aligned to 4 bytes, or
    // null for zeros. d is even.
    template <int N, class Row> static HIPVIT_DEVICE void gather_y(Y (&y)[N], u32 d, const Row &of_row) {
        const int column = lane_index() % 4 * 2;
        const T *const row[2] = {of_row(lane_index() / 4), of_row(lane_index() / 4 + 8)};
#pragma unroll
        for (int c = 0; c < N; ++c) {
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                const u32 at = c * 16 + w / 2 * 8 + column;
                y[c].word[w] = row[w % 2] && at < d ? *reinterpret_cast<const u32 *>(row[w % 2] + at) : 0;
            }
        }
    }
    // Each lane takes 8 of 32, or 4 of 16, adjacent elements of two rows. The instruction's own order is pairs that are 8 apart.
    template <int N, class Row> static HIPVIT_DEVICE void gather_x(X (&x)[N], const Row &of_row) {
        const int lane = lane_index();
        const T *const low = of_row(lane / 4), *const high = of_row(lane / 4 + 8);
#pragma unroll
        for (int c = 0; c + 1 < N; c += 2) {
            const Vec128 l = *reinterpret_cast<const Vec128 *>(low + c * 16 + lane % 4 * 8);
            const Vec128 h = *reinterpret_cast<const Vec128 *>(high + c * 16 + lane % 4 * 8);
            x[c] = {{l.word[0], l.word[1], h.word[0], h.word[1]}};
            x[c + 1] = {{l.word[2], l.word[3], h.word[2], h.word[3]}};
        }
        if constexpr (N % 2 == 1) {
            const Vec64 l = *reinterpret_cast<const Vec64 *>(low + (N - 1) * 16 + lane % 4 * 4);
            const Vec64 h = *reinterpret_cast<const Vec64 *>(high + (N - 1) * 16 + lane % 4 * 4);
            x[N - 1] = {{l.word[0], l.word[1], h.word[0], h.word[1]}};
        }
    }
    template <int N, class Row> static HIPVIT_DEVICE void gather_y(Y (&y)[N], const Row &of_row) {
        gather_x(y, of_row);
#pragma unroll
        for (int c = 0; c < N; ++c) y[c] = {{y[c].word[0], y[c].word[2], y[c].word[1], y[c].word[3]}};
    }
    // load and load_transposed are load_x and load_x_rows from the element that the lane addresses: x_element or x_rows_element in
    // rows with the layout Rows. load from x_rows_element is load_y.
    template <class Rows> static HIPVIT_DEVICE u32 x_element() {
        const int lane = lane_index();
        return Rows::at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
    }
    template <class Rows> static HIPVIT_DEVICE u32 x_rows_element() {
        const int lane = lane_index();
        return Rows::at(lane % 16, lane / 16 * 8);
    }
    static HIPVIT_DEVICE Y as_y(const Acc &acc) {
        Y y;
#pragma unroll
        for (int w = 0; w < 4; ++w) y.word[w] = pair<T>(acc.value[2 * w], acc.value[2 * w + 1]);
        return y;
    }
    static HIPVIT_DEVICE void multiply(Acc &acc, const X &x, const Y &y) {
        instruction(T{}, acc.value, y, x.word[0], x.word[1]);
        instruction(T{}, acc.value + 4, y, x.word[2], x.word[3]);
    }

    static HIPVIT_DEVICE Vec128 load(const T *from) {
        const u32 address = u32(__cvta_generic_to_shared(from));
        Vec128 x;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
                     : "r"(address)
                     : "memory");
        return x;
    }
    static HIPVIT_DEVICE Vec128 load_transposed(const T *from) {
        const u32 address = u32(__cvta_generic_to_shared(from));
        Vec128 x;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
                     : "r"(address)
                     : "memory");
        return x;
    }
  private:
    static HIPVIT_DEVICE void instruction(f16, float *d, const Vec128 &a, u32 b0, u32 b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b0), "r"(b1), "f"(d[0]), "f"(d[1]),
              "f"(d[2]), "f"(d[3]));
    }
    static HIPVIT_DEVICE void instruction(bf16, float *d, const Vec128 &a, u32 b0, u32 b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b0), "r"(b1), "f"(d[0]), "f"(d[1]),
              "f"(d[2]), "f"(d[3]));
    }
};

template <> struct Mma<f16> : SyncTile<f16> {};
template <> struct Mma<bf16> : SyncTile<bf16> {};

#endif

// True if matrix cores do not multiply T.
template <class T> constexpr bool PLAIN = __is_base_of(FmaTile<T>, Mma<T>);

} // namespace hipvit
