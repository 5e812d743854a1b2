// Arguments and geometry of recurrence.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `recurrence`, some units each.
constexpr unsigned RECURRENCE_THREADS = 256;
/// Rows of a block, which share each weight that is read.
constexpr unsigned RECURRENCE_ROWS = 4;
/// Maximum number of units.
constexpr unsigned RECURRENCE_UNITS = 512;

/// `recurrence`: an LSTM (gates in the order i, o, f, g) or GRU (z, r, n) over steps.
struct RecurrenceArgs {
    /// T `[steps, rows, gates · units]`: products of the inputs, with biases.
    DEVICE_POINTER(const void) gates;
    /// T `[units, gates · units]`.
    DEVICE_POINTER(const void) weight;
    /// T `[units]` of a GRU that does not reset first, otherwise null.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, units]`: the hidden state before the first step; null: zeros.
    DEVICE_POINTER(const void) first_hidden;
    /// T `[rows, units]`: the cells of an LSTM before the first step; null: zeros.
    DEVICE_POINTER(const void) first_cell;
    /// T `[steps, rows, units]`: the hidden state after each step. Aliases no operand.
    DEVICE_POINTER(void) out;
    /// T `[rows, units]`: the last hidden state. Aliases no operand.
    DEVICE_POINTER(void) last_hidden;
    /// T `[rows, units]`: the last cells of an LSTM, otherwise null. Aliases no operand.
    DEVICE_POINTER(void) last_cell;
    /// Number of steps.
    unsigned steps;
    /// Rows that are independent of each other.
    unsigned rows;
    /// Units, at most RECURRENCE_UNITS.
    unsigned units;
    /// 4: LSTM; 3: GRU.
    unsigned gate_count;
    /// 1: the last step comes first.
    unsigned reverse;
    /// 1: a GRU multiplies the hidden state by the reset gate before its product with the weight; 0: the product.
    unsigned reset_first;
};

} // namespace hipvit
