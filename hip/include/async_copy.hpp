// Asynchronous copies from global memory to LDS, which bypass the registers: cp.async on sm_80 and later. On other architectures
// ASYNC_COPIES is false, and copy_async copies at once.
// See also staged_copy.hpp.
#pragma once
#include "float8.hpp"

namespace hipvit {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
constexpr bool ASYNC_COPIES = true;
#else
constexpr bool ASYNC_COPIES = false;
#endif

// Copies 16 bytes, or writes zeros without reading `from` if `exists` is false. Both addresses are aligned to 16 bytes.
HIPVIT_DEVICE void copy_async(void *to, const void *from, bool exists) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(u32(__cvta_generic_to_shared(to))), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
#else
    *static_cast<Vec128 *>(to) = exists ? *static_cast<const Vec128 *>(from) : Vec128{{0, 0, 0, 0}};
#endif
}

// Ends a batch of copies of this thread.
HIPVIT_DEVICE void end_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the last PENDING batches of this thread are in flight. Other threads see the copies after a barrier.
template <int PENDING> HIPVIT_DEVICE void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// The layout of rows of D elements in LDS that avoids bank conflicts: an XOR swizzle of each row's vec128s where D is a power of
// two, otherwise rows that are 16 bytes longer than their contents.
template <class T, int D> struct LdsRows {
    using Element = T;
    static constexpr int VECS = D / int(VEC<T>);
    static constexpr bool SWIZZLED = (VECS & (VECS - 1)) == 0;
    static constexpr int PITCH = SWIZZLED ? D : D + int(VEC<T>);
    static HIPVIT_DEVICE u32 at(u32 row, u32 column) {
        // 8 vec128s are all banks.
        constexpr u32 ROWS_PER_LINE = VECS < 8 ? 8 / VECS : 1, SWIZZLES = VECS < 8 ? VECS : 8;
        return row * PITCH + (SWIZZLED ? column ^ row / ROWS_PER_LINE % SWIZZLES * VEC<T> : column);
    }
    // at(row, c + column) from at(row, c), if c and `column` have no bit in common.
    static HIPVIT_DEVICE u32 shifted(u32 at, u32 column) { return SWIZZLED ? at ^ column : at + column; }
};

// Copies COUNT rows between global memory and LDS in passes: a thread copies the vec128 at the same column of several rows. The global
// address is that of the thread's element (row, column). `rows` rows of `d` elements exist.
// `vector`: the global addresses are aligned to 16 bytes; otherwise the copy is synchronous.
template <class Rows, int COUNT, int THREADS> struct AsyncCopy {
    using T = typename Rows::Element;
    static constexpr int ROWS = THREADS / Rows::VECS; // of a pass
    static constexpr int PASSES = (COUNT + ROWS - 1) / ROWS;
    u32 row, column;

    HIPVIT_DEVICE AsyncCopy(u32 thread) : row(thread / Rows::VECS), column(thread % Rows::VECS * VEC<T>) {}

    HIPVIT_DEVICE bool idle() const { return ROWS * Rows::VECS != THREADS && row >= ROWS; }
    HIPVIT_DEVICE void to_lds(T *to, const T *from, u32 stride, u32 rows, u32 d, bool vector) const {
        if (idle()) return;
        if (vector) {
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                const u32 at = row + p * ROWS;
                if (COUNT % ROWS == 0 || at < COUNT)
                    copy_async(to + Rows::at(at, column), from + u64(stride) * (p * ROWS), at < rows && column < d);
            }
        } else {
            from = opaque(from); // NVRTC would keep a second pointer for this loop
#pragma unroll 1
            for (u32 at = row; at < COUNT; at += ROWS, from += u64(stride) * ROWS) {
                union {
                    Vec128 whole;
                    T element[VEC<T>];
                } vec;
                vec.whole = {{0, 0, 0, 0}};
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i)
                    if (at < rows && column + i < d) vec.element[i] = from[i];
                *reinterpret_cast<Vec128 *>(to + Rows::at(at, column)) = vec.whole;
            }
        }
    }
    HIPVIT_DEVICE void from_lds(T *to, const T *from, u32 stride, u32 rows, u32 d, bool vector) const {
        if (idle() || column >= d) return;
        if (vector) {
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                const u32 at = row + p * ROWS;
                if ((COUNT % ROWS == 0 || at < COUNT) && at < rows)
                    *reinterpret_cast<Vec128 *>(to + u64(stride) * (p * ROWS)) =
                        *reinterpret_cast<const Vec128 *>(from + Rows::at(at, column));
            }
        } else {
#pragma unroll 1
            for (u32 at = row; at < COUNT && at < rows; at += ROWS, to += u64(stride) * ROWS) {
#pragma unroll 1
                for (u32 i = 0; i < VEC<T> && column + i < d; ++i) to[i] = from[Rows::at(at, column) + i];
            }
        }
    }
    // Writes E4M3 of the elements times `factor`. `vector`: the bytes of a vec128 are aligned to their number.
    HIPVIT_DEVICE void from_lds_as_float8(u8 *to, const T *from, u32 stride, u32 rows, u32 d, bool vector, float factor) const {
        if (idle() || column >= d) return;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const u32 at = row + p * ROWS;
            if ((COUNT % ROWS != 0 && at >= COUNT) || at >= rows) continue;
            float x[VEC<T>];
            load_vec(from + Rows::at(at, column), VEC<T>, true, x);
            store_float8(to + u64(stride) * (p * ROWS), d - column, vector, factor, x);
        }
    }
};

} // namespace hipvit
