// A long row in registers: what LayerNorm and softmax share. A group of threads holds up to ROW_REGISTERS elements a
// thread; what a row has beyond that is loaded again in each pass.
#pragma once
#include "pack.hpp"
#include "row.h"
#include "wave.hpp"

namespace hipvit {

template <class T> struct Row {
    static constexpr u32 KEPT = ROW_REGISTERS / PACK<T>;
    float kept[KEPT][PACK<T>];
    u32 length, rank, size;

    HIPVIT_DEVICE Row(u32 length, const RowGroup<ROW_THREADS> &group)
        : length(length), rank(group.rank()), size(group.size()) {}

    // Calls load(column, valid, float (&)[PACK]) for every pack, and f(column, i, element) for every element of it.
    template <class Load, class Each> HIPVIT_DEVICE void fill(const Load &load, const Each &each) {
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) visit(s, kept[s], load, each);
        overflow(load, each);
    }

    // As fill, but the kept elements are not loaded again.
    template <class Load, class Each> HIPVIT_DEVICE void again(const Load &load, const Each &each) {
        auto have = [](u32, u32, float(&)[PACK<T>]) {};
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) visit(s, kept[s], have, each);
        overflow(load, each);
    }

    // As again, and store(column, valid, pack) once each has changed the pack.
    template <class Load, class Each, class Store>
    HIPVIT_DEVICE void finish(const Load &load, const Each &each, const Store &store) {
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) {
            u32 column = (rank + s * size) * PACK<T>;
            if (column >= length) continue;
            write(column, kept[s], each, store);
        }
        for (u32 column = (rank + KEPT * size) * PACK<T>; column < length; column += size * PACK<T>) {
            float pack[PACK<T>];
            load(column, valid(column), pack);
            write(column, pack, each, store);
        }
    }

  private:
    HIPVIT_DEVICE u32 valid(u32 column) const { return length - column < PACK<T> ? length - column : PACK<T>; }

    template <class Load, class Each>
    HIPVIT_DEVICE void visit(u32 s, float (&pack)[PACK<T>], const Load &load, const Each &each) {
        u32 column = (rank + s * size) * PACK<T>;
        if (column >= length) return;
        load(column, valid(column), pack);
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i)
            if (i < valid(column)) each(column + i, pack[i]);
    }

    template <class Load, class Each> HIPVIT_DEVICE void overflow(const Load &load, const Each &each) {
        for (u32 s = KEPT; (rank + s * size) * PACK<T> < length; ++s) {
            float pack[PACK<T>];
            visit(s, pack, load, each);
        }
    }

    template <class Each, class Store>
    HIPVIT_DEVICE void write(u32 column, float (&pack)[PACK<T>], const Each &each, const Store &store) {
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i)
            if (i < valid(column)) each(column + i, pack[i]);
        store(column, valid(column), pack);
    }
};

} // namespace hipvit
