// A row in registers, for the kernels that reduce over rows. A thread of the group keeps up to REGISTERS elements; the rest of a longer
// row is loaded again in each pass.
#pragma once
#include "row.h"
#include "vec128.hpp"
#include "wave.hpp"

namespace hipvit {

template <class T, u32 REGISTERS = ROW_REGISTERS> struct Row {
    static constexpr u32 KEPT = REGISTERS / VEC<T>;
    float kept[KEPT ? KEPT : 1][VEC<T>];
    u32 length, rank, size;

    template <class Group>
    HIPVIT_DEVICE Row(u32 length, const Group &group)
        : length(length), rank(group.rank()), size(group.size()) {}

    // Calls load(column, valid, float (&)[VEC]) for every vec128 of the thread, and each(column, element) for its elements.
    template <class Load, class Each> HIPVIT_DEVICE void fill(const Load &load, const Each &each) {
        // All loads come before the first use, so that their latencies overlap.
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) {
            const u32 column = (rank + s * size) * VEC<T>;
            if (column < length) load(column, valid(column), kept[s]);
        }
        again(load, each);
    }

    // Like fill, without loading the kept elements again.
    template <class Load, class Each> HIPVIT_DEVICE void again(const Load &load, const Each &each) {
        auto have = [](u32, u32, float(&)[VEC<T>]) {};
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) visit(s, kept[s], have, each);
        overflow(load, each);
    }

    // Like again, but each may change the element, and store(column, valid, vec) receives the result.
    template <class Load, class Each, class Store>
    HIPVIT_DEVICE void finish(const Load &load, const Each &each, const Store &store) {
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) {
            u32 column = (rank + s * size) * VEC<T>;
            if (column >= length) continue;
            write(column, kept[s], each, store);
        }
        for (u32 column = (rank + KEPT * size) * VEC<T>; column < length; column += size * VEC<T>) {
            float vec[VEC<T>];
            load(column, valid(column), vec);
            write(column, vec, each, store);
        }
    }

  private:
    HIPVIT_DEVICE u32 valid(u32 column) const { return length - column < VEC<T> ? length - column : VEC<T>; }

    template <class Load, class Each>
    HIPVIT_DEVICE void visit(u32 s, float (&vec)[VEC<T>], const Load &load, const Each &each) {
        u32 column = (rank + s * size) * VEC<T>;
        if (column >= length) return;
        load(column, valid(column), vec);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i)
            if (i < valid(column)) each(column + i, vec[i]);
    }

    template <class Load, class Each> HIPVIT_DEVICE void overflow(const Load &load, const Each &each) {
        for (u32 s = KEPT; (rank + s * size) * VEC<T> < length; ++s) {
            float vec[VEC<T>];
            visit(s, vec, load, each);
        }
    }

    template <class Each, class Store>
    HIPVIT_DEVICE void write(u32 column, float (&vec)[VEC<T>], const Each &each, const Store &store) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i)
            if (i < valid(column)) each(column + i, vec[i]);
        store(column, valid(column), vec);
    }
};

// A thread's part of a row of whole vec128s: the first KEPT of its vec128s are in registers, as stored. All are loaded before any is
// used.
template <class T, u32 REGISTERS> struct PackedRow {
    static constexpr u32 KEPT = REGISTERS / VEC<T>;
    const Vec<T> *row;
    u32 vecs, rank, size;
    Vec<T> kept[KEPT];

    template <class Group>
    HIPVIT_DEVICE PackedRow(const Vec<T> *row, u32 vecs, const Group &group)
        : row(row), vecs(vecs), rank(group.rank()), size(group.size()) {
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) {
            const u32 at = rank + s * size;
            if (at < vecs) kept[s].whole = row[at].whole;
        }
    }
    // Calls each(vec, index, s) for the thread's vec128s in registers.
    template <class Each> HIPVIT_DEVICE void for_each_kept(const Each &each) const {
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) {
            const u32 at = rank + s * size;
            if (at < vecs) each(kept[s], at, s);
        }
    }
    // Calls each(vec, index, KEPT) for the thread's other vec128s, which are loaded again.
    template <class Each> HIPVIT_DEVICE void for_each_beyond(const Each &each) const {
        for (u32 at = rank + KEPT * size; at < vecs; at += size) {
            Vec<T> vec;
            vec.whole = row[at].whole;
            each(vec, at, KEPT);
        }
    }
    // Calls each for all of the thread's vec128s.
    template <class Each> HIPVIT_DEVICE void for_each(const Each &each) const {
        for_each_kept(each);
        for_each_beyond(each);
    }
};

} // namespace hipvit
