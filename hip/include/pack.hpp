// Sixteen bytes at a time: packs of elements between memory and f32 registers.
#pragma once
#include "device.hpp"
#include "vec128.h"

namespace hipvit {

struct alignas(16) Bytes16 {
    u32 word[4];
};
struct alignas(8) Bytes8 {
    u32 word[2];
};

// Elements of T in 16 bytes.
template <class T> constexpr u32 PACK = VEC128_BYTES / sizeof(T);

HIPVIT_DEVICE bool aligned(const void *address, u64 bytes) { return (u64)address % bytes == 0; }

// Up to PACK<T> elements from `from`, of which `valid` exist; the others become 0. `vector` says that `from` is aligned
// to 16 bytes.
template <class T> HIPVIT_DEVICE void load_pack(const T *from, u32 valid, bool vector, float (&x)[PACK<T>]) {
    union {
        Bytes16 whole;
        T element[PACK<T>];
    } pack;
    if (vector && valid >= PACK<T>) {
        pack.whole = *reinterpret_cast<const Bytes16 *>(from);
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) x[i] = to_float(pack.element[i]);
    } else {
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) x[i] = i < valid ? to_float(from[i]) : 0.0f;
    }
}

// The reverse; elements from `valid` on are not written.
template <class T> HIPVIT_DEVICE void store_pack(T *to, u32 valid, bool vector, const float (&x)[PACK<T>]) {
    union {
        Bytes16 whole;
        T element[PACK<T>];
    } pack;
    if (vector && valid >= PACK<T>) {
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) pack.element[i] = from_float<T>(x[i]);
        *reinterpret_cast<Bytes16 *>(to) = pack.whole;
    } else {
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i)
            if (i < valid) to[i] = from_float<T>(x[i]);
    }
}

// One thread's pack of a row-major matrix `[rows, columns]` whose rows are cut into packs; the last may be short.
template <class T> struct MatrixPack {
    u64 row;
    u32 column, valid;

    HIPVIT_DEVICE MatrixPack(u64 index, u32 columns) {
        u32 per_row = (columns + PACK<T> - 1) / PACK<T>;
        row = index / per_row;
        column = u32(index % per_row) * PACK<T>;
        valid = columns - column < PACK<T> ? columns - column : PACK<T>;
    }
};

} // namespace hipvit
