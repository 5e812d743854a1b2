// Vectorised access: 16 bytes of elements between memory and f32 registers.
#pragma once
#include "device.hpp"
#include "vec128.h"

namespace hipvit {

struct alignas(VEC128_BYTES) Vec128 {
    u32 word[4];
};
struct alignas(8) Vec64 {
    u32 word[2];
};

// Elements of T in a vec128.
template <class T> constexpr u32 VEC = VEC128_BYTES / sizeof(T);

// A vec128 as stored, and as elements.
template <class T> union Vec {
    Vec128 whole;
    T element[VEC<T>];

    HIPVIT_DEVICE float operator[](u32 i) const { return to_float(element[i]); }
};
// A bf16 is the upper half of an f32. Without this specialisation NVRTC shifts the upper element of a word down and up again.
template <> HIPVIT_DEVICE float Vec<bf16>::operator[](u32 i) const {
    const u32 word = whole.word[i / 2];
    return float_of(i % 2 ? word & 0xffff0000 : word << 16);
}

HIPVIT_DEVICE bool aligned(const void *address, u64 bytes) { return (u64)address % bytes == 0; }

// Loads VEC<T> elements, of which the first `valid` exist; the others become 0. `vector`: `from` is aligned to 16 bytes.
template <class T> HIPVIT_DEVICE void load_vec(const T *from, u32 valid, bool vector, float (&x)[VEC<T>]) {
    Vec<T> vec;
    if (vector && valid >= VEC<T>) {
        vec.whole = *reinterpret_cast<const Vec128 *>(from);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) x[i] = vec[i];
    } else {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) x[i] = i < valid ? to_float(from[i]) : 0.0f;
    }
}

// Stores the first `valid` of VEC<T> elements. `vector`: `to` is aligned to 16 bytes.
template <class T> HIPVIT_DEVICE void store_vec(T *to, u32 valid, bool vector, const float (&x)[VEC<T>]) {
    Vec<T> vec;
    if (vector && valid >= VEC<T>) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) vec.element[i] = from_float<T>(x[i]);
        *reinterpret_cast<Vec128 *>(to) = vec.whole;
    } else {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i)
            if (i < valid) to[i] = from_float<T>(x[i]);
    }
}

// 64-bit division is a long routine that few dividends need.
HIPVIT_DEVICE u64 divide(u64 a, u32 b) {
    return a >> 32 ? a / b : u64(u32(a) / b);
}

// The position of a vec128 in a row-major matrix of `columns` columns. Each row starts a new vec128; the last one of a row may be
// partial.
template <class T> struct MatrixVec {
    u64 row;
    u32 column, valid;

    HIPVIT_DEVICE MatrixVec(u64 index, u32 columns) {
        u32 per_row = (columns + VEC<T> - 1) / VEC<T>;
        row = divide(index, per_row);
        column = u32(index - row * per_row) * VEC<T>;
        valid = columns - column < VEC<T> ? columns - column : VEC<T>;
    }
};

} // namespace hipvit
