// Arguments of elementwise, whose formula src/kernels/elementwise generates.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// Maximum number of operands of a formula.
constexpr unsigned FORMULA_OPERANDS = 8;
/// Maximum number of axes of a result, of which the last one is its columns.
constexpr unsigned FORMULA_AXES = 6;

/// Maximum number of constants of a formula that are arguments. The program has the others.
constexpr unsigned FORMULA_CONSTANTS = 16;

/// `elementwise`: out = f(operands), each of which may repeat along some axes.
struct ElementwiseFormulaArgs {
    /// Operands, T or i32. Null beyond the last one.
    DEVICE_POINTER(const void) operands[8];
    /// Result `[rows, columns]`, T or i32. May alias an operand that repeats along no axis, of elements of the same size.
    DEVICE_POINTER(void) out;
    /// Extents of the axes of the rows, outermost first. 1 before the first one.
    unsigned extents[5];
    /// Strides of the operands along these axes, in elements. 0 along an axis along which an operand repeats.
    unsigned strides[8][5];
    /// Strides of the operands along the columns, 0 or 1.
    unsigned column_strides[8];
    /// Bytes of the elements of the operands, for the host. 0 beyond the last one.
    unsigned element_bytes[8];
    /// Constants of the formula, so that formulas that differ only in these share a program.
    float constants[16];
    /// Product of `extents`.
    unsigned rows;
    /// Columns of the result.
    unsigned columns;
    /// Bytes of the elements of the result, for the host.
    unsigned result_bytes;
};

} // namespace hipvit
