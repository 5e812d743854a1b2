// Copies of rows to LDS through registers. The caller chooses the layout in LDS. See also async_copy.hpp.
#pragma once
#include "vec128.hpp"

namespace hipvit {

// Copies COUNT rows from row `first` on to LDS, called by all threads of the block. Elements beyond `rows` or `d` become 0. A thread
// copies VECS vec128s; write(row, column, vec) stores one. ADJACENT threads copy adjacent vec128s of a row.
template <class T, int D, int COUNT, int ADJACENT, int THREADS> struct Staged {
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
    // Loads and stores each vec128 in turn, which takes few registers.
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

} // namespace hipvit
