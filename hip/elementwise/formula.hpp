// An elementwise formula of operands that are broadcast. The program that includes this file is generated: it defines
//
//   struct Formula
//     OPERANDS          number of operands
//     INTEGERS          bit i: operand i is in i32
//     INTEGER_RESULT    whether the result is in i32
//     value(x, c)       the result of the operands x[OPERANDS] and the constants c
//
// and ends with HIPVIT_FOR_DTYPES(HIPVIT_ELEMENTWISE, elementwise), whose entries are elementwise_T.
//
// Shapes: out [rows, columns], row-major; the operands by their strides. See elementwise_formula.h.
// Alignment: any; vec128 access where columns and the addresses allow it.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of T of a row per thread.
#pragma once
#include "elementwise/functions.hpp"
#include "elementwise_formula.h"
#include "vec128.hpp"

namespace hipvit {

struct Formula;

template <class T> HIPVIT_DEVICE void load_integers(const int *from, u32 valid, float (&x)[VEC<T>]) {
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) x[i] = i < valid ? float(from[i]) : 0.0f;
}

// Loads the operand's elements of a vec128 of the result, which is at `offset`. `stride`: 0 if they are all the first one.
template <class T, bool INTEGER>
HIPVIT_DEVICE void load_operand(const void *operand, u64 offset, u32 column, u32 stride, u32 valid, float (&x)[VEC<T>]) {
    if (stride == 0) {
        const float value = INTEGER ? float(((const int *)operand)[offset]) : to_float(((const T *)operand)[offset]);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) x[i] = value;
    } else if constexpr (INTEGER) {
        load_integers<T>((const int *)operand + offset + column, valid, x);
    } else {
        const T *from = (const T *)operand + offset + column;
        load_vec(from, valid, aligned(from, VEC128_BYTES), x);
    }
}

// Loads operand I and those after it.
template <class T, class F, u32 I>
HIPVIT_DEVICE void load_operands(const ElementwiseFormulaArgs &a, const MatrixVec<T> &vec, float (&x)[F::OPERANDS][VEC<T>]) {
    if constexpr (I < F::OPERANDS) {
        u64 offset = 0;
        u32 row = u32(vec.row);
        // Unrolled, so that arguments are not indexed by a variable. Most results have a single axis of rows.
#pragma unroll
        for (u32 axis = FORMULA_AXES - 1; axis-- > 0;) {
            if (row == 0) break;
            const u32 outer = row / a.extents[axis];
            offset += u64(row - outer * a.extents[axis]) * a.strides[I][axis];
            row = outer;
        }
        load_operand<T, (F::INTEGERS >> I & 1) != 0>(a.operands[I], offset, vec.column, a.column_strides[I], vec.valid, x[I]);
        load_operands<T, F, I + 1>(a, vec, x);
    }
}

// Computes element I and those after it. Clang does not unroll a loop over long formulas, and then indexes registers by a variable.
template <class T, class F, u32 I>
HIPVIT_DEVICE void apply(const ElementwiseFormulaArgs &a, const float (&x)[F::OPERANDS][VEC<T>], float (&y)[VEC<T>]) {
    if constexpr (I < VEC<T>) {
        float of_element[F::OPERANDS];
#pragma unroll
        for (u32 operand = 0; operand < F::OPERANDS; ++operand) of_element[operand] = x[operand][I];
        y[I] = F::value(of_element, a.constants);
        apply<T, F, I + 1>(a, x, y);
    }
}

template <class T, class F> HIPVIT_DEVICE void elementwise(const ElementwiseFormulaArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.columns);
    if (vec.row >= a.rows) return;
    float x[F::OPERANDS][VEC<T>], y[VEC<T>];
    load_operands<T, F, 0>(a, vec, x);
    apply<T, F, 0>(a, x, y);
    const u64 at = vec.row * a.columns + vec.column;
    if constexpr (F::INTEGER_RESULT) {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i)
            if (i < vec.valid) ((int *)a.out)[at + i] = int(y[i]);
    } else {
        T *to = (T *)a.out + at;
        store_vec(to, vec.valid, aligned(to, VEC128_BYTES), y);
    }
}

} // namespace hipvit

#define HIPVIT_ELEMENTWISE(name, T)                                                                                    \
    HIPVIT_KERNEL(hipvit::ELEMENTWISE_THREADS) name##_##T(hipvit::ElementwiseFormulaArgs a) {                          \
        hipvit::elementwise<hipvit::T, hipvit::Formula>(a);                                                            \
    }
