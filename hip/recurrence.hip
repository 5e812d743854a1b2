// recurrence: an LSTM or GRU over steps.
//
// Shapes: gates T [steps, rows, gates·units], weight T [units, gates·units], bias T [units]; states T [rows, units]; out T [steps, rows, units].
//   All row-major.
// Alignment: any.
// Accumulator: f32. States stay in f32 between steps.
// Geometry: blocks of RECURRENCE_THREADS, RECURRENCE_ROWS rows each. A thread has the units that are RECURRENCE_THREADS apart. The hidden state
//   is in LDS twice: before and after the step. Cells are in registers.
#include "recurrence.h"
#include "activation.hpp"

using namespace hipvit;

// Units of a thread.
constexpr u32 OWN = RECURRENCE_UNITS / RECURRENCE_THREADS;

HIPVIT_DEVICE float logistic(float x) { return quotient(1.0f, 1.0f + exponential(-x)); }

template <class T, u32 GATES>
HIPVIT_DEVICE void steps(const RecurrenceArgs &a, float (&hidden)[2][RECURRENCE_UNITS][RECURRENCE_ROWS]) {
    const u32 first = block_index() * RECURRENCE_ROWS, width = GATES * a.units;
    const u32 rows = a.rows - first < RECURRENCE_ROWS ? a.rows - first : RECURRENCE_ROWS;
    const T *weight = (const T *)a.weight;
    float cell[OWN][RECURRENCE_ROWS];
#pragma unroll
    for (u32 own = 0; own < OWN; ++own) {
        const u32 unit = own * RECURRENCE_THREADS + thread_index();
#pragma unroll
        for (u32 row = 0; row < RECURRENCE_ROWS; ++row) {
            const bool exists = row < rows && unit < a.units;
            const u64 at = u64(first + row) * a.units + unit;
            cell[own][row] = exists && a.first_cell ? to_float(((const T *)a.first_cell)[at]) : 0.0f;
            hidden[0][unit][row] = exists && a.first_hidden ? to_float(((const T *)a.first_hidden)[at]) : 0.0f;
        }
    }
    barrier();
    u32 from = 0;
    for (u32 step = 0; step < a.steps; ++step) {
        const u64 row_of_step = u64(a.reverse ? a.steps - 1 - step : step) * a.rows + first;
#pragma unroll
        for (u32 own = 0; own < OWN; ++own) {
            const u32 unit = own * RECURRENCE_THREADS + thread_index();
            if (unit >= a.units) continue;
            float sum[GATES][RECURRENCE_ROWS] = {};
            for (u32 k = 0; k < a.units; ++k) {
#pragma unroll
                for (u32 gate = 0; gate < GATES; ++gate) {
                    const float w = to_float(weight[u64(k) * width + gate * a.units + unit]);
#pragma unroll
                    for (u32 row = 0; row < RECURRENCE_ROWS; ++row)
                        sum[gate][row] = multiply_add(hidden[from][k][row], w, sum[gate][row]);
                }
            }
#pragma unroll
            for (u32 row = 0; row < RECURRENCE_ROWS; ++row) {
                if (row >= rows) continue;
                const T *gates = (const T *)a.gates + (row_of_step + row) * width + unit;
                float x[GATES];
#pragma unroll
                for (u32 gate = 0; gate < GATES; ++gate) x[gate] = to_float(gates[gate * a.units]);
                float next;
                if constexpr (GATES == 4) {
                    const float input = logistic(x[0] + sum[0][row]), output = logistic(x[1] + sum[1][row]);
                    const float forget = logistic(x[2] + sum[2][row]);
                    const float value = hyperbolic_tangent(x[3] + sum[3][row]);
                    cell[own][row] = multiply_add(forget, cell[own][row], input * value);
                    next = output * hyperbolic_tangent(cell[own][row]);
                } else {
                    const float update = logistic(x[0] + sum[0][row]), reset = logistic(x[1] + sum[1][row]);
                    const float product = sum[2][row] + to_float(((const T *)a.bias)[unit]);
                    const float value = hyperbolic_tangent(multiply_add(reset, product, x[2]));
                    next = multiply_add(update, hidden[from][unit][row] - value, value);
                }
                hidden[1 - from][unit][row] = next;
                ((T *)a.out)[(row_of_step + row) * a.units + unit] = from_float<T>(next);
            }
        }
        barrier();
        from = 1 - from;
    }
#pragma unroll
    for (u32 own = 0; own < OWN; ++own) {
        const u32 unit = own * RECURRENCE_THREADS + thread_index();
        if (unit >= a.units) continue;
#pragma unroll
        for (u32 row = 0; row < RECURRENCE_ROWS; ++row) {
            if (row >= rows) continue;
            const u64 at = u64(first + row) * a.units + unit;
            ((T *)a.last_hidden)[at] = from_float<T>(hidden[from][unit][row]);
            if constexpr (GATES == 4) ((T *)a.last_cell)[at] = from_float<T>(cell[own][row]);
        }
    }
}

template <class T> HIPVIT_DEVICE void recurrence(const RecurrenceArgs &a) {
    HIPVIT_LDS static float hidden[2][RECURRENCE_UNITS][RECURRENCE_ROWS];
    if (u64(block_index()) * RECURRENCE_ROWS >= a.rows) return; // a whole block
    if (a.gate_count == 4) {
        steps<T, 4>(a, hidden);
    } else {
        steps<T, 3>(a, hidden);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(RECURRENCE_THREADS) name##_##T(RecurrenceArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, recurrence)
