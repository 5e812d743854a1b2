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

using States = float[RECURRENCE_UNITS][RECURRENCE_ROWS];

// Products of a state with the weights of a unit for the gates from FIRST on.
template <class T, u32 FIRST, u32 GATES, u32 ALL>
HIPVIT_DEVICE void products(const RecurrenceArgs &a, const States &state, u32 unit, float (&sum)[GATES][RECURRENCE_ROWS]) {
    const T *weight = (const T *)a.weight + FIRST * a.units + unit;
#pragma unroll
    for (u32 gate = 0; gate < GATES; ++gate)
#pragma unroll
        for (u32 row = 0; row < RECURRENCE_ROWS; ++row) sum[gate][row] = 0.0f;
    for (u32 k = 0; k < a.units; ++k) {
#pragma unroll
        for (u32 gate = 0; gate < GATES; ++gate) {
            const float w = to_float(weight[u64(k) * (ALL * a.units) + gate * a.units]);
#pragma unroll
            for (u32 row = 0; row < RECURRENCE_ROWS; ++row)
                sum[gate][row] = multiply_add(state[k][row], w, sum[gate][row]);
        }
    }
}

// Rows of a block, which some units of a thread have the states of.
template <class T> struct Rows {
    const RecurrenceArgs &a;
    u32 first, count;

    HIPVIT_DEVICE Rows(const RecurrenceArgs &a) : a(a), first(block_index() * RECURRENCE_ROWS) {
        count = a.rows - first < RECURRENCE_ROWS ? a.rows - first : RECURRENCE_ROWS;
    }

    HIPVIT_DEVICE u64 step(u32 index) const { return u64(a.reverse ? a.steps - 1 - index : index) * a.rows + first; }

    HIPVIT_DEVICE u64 state(u32 row, u32 unit) const { return u64(first + row) * a.units + unit; }

    // Calls f with each unit of the thread: its index among those of the thread, and among all.
    template <class F> HIPVIT_DEVICE void for_each_unit(const F &f) const {
#pragma unroll
        for (u32 own = 0; own < OWN; ++own) {
            const u32 unit = own * RECURRENCE_THREADS + thread_index();
            if (unit < a.units) f(own, unit);
        }
    }

    template <class F> HIPVIT_DEVICE void for_each(const F &f) const {
#pragma unroll
        for (u32 row = 0; row < RECURRENCE_ROWS; ++row)
            if (row < count) f(row);
    }

    // The first state, or zeros. Rows beyond the last one are zeros.
    HIPVIT_DEVICE void load(const void *from, u32 unit, float (&to)[RECURRENCE_ROWS]) const {
#pragma unroll
        for (u32 row = 0; row < RECURRENCE_ROWS; ++row)
            to[row] = from && row < count ? to_float(((const T *)from)[state(row, unit)]) : 0.0f;
    }

    HIPVIT_DEVICE void store(void *to, u32 unit, const float (&from)[RECURRENCE_ROWS]) const {
        for_each([&](u32 row) { ((T *)to)[state(row, unit)] = from_float<T>(from[row]); });
    }
};

template <class T> HIPVIT_DEVICE void lstm(const RecurrenceArgs &a, States (&hidden)[2]) {
    const Rows<T> rows(a);
    float cell[OWN][RECURRENCE_ROWS] = {};
    rows.for_each_unit([&](u32 own, u32 unit) {
        rows.load(a.first_hidden, unit, hidden[0][unit]);
        rows.load(a.first_cell, unit, cell[own]);
    });
    barrier();
    u32 from = 0;
    for (u32 step = 0; step < a.steps; ++step) {
        const u64 start = rows.step(step);
        rows.for_each_unit([&](u32 own, u32 unit) {
            float sum[4][RECURRENCE_ROWS];
            products<T, 0, 4, 4>(a, hidden[from], unit, sum);
            rows.for_each([&](u32 row) {
                const T *gates = (const T *)a.gates + (start + row) * 4 * a.units + unit;
                const float input = logistic(to_float(gates[0]) + sum[0][row]);
                const float output = logistic(to_float(gates[a.units]) + sum[1][row]);
                const float forget = logistic(to_float(gates[2 * a.units]) + sum[2][row]);
                const float value = hyperbolic_tangent(to_float(gates[3 * a.units]) + sum[3][row]);
                cell[own][row] = multiply_add(forget, cell[own][row], input * value);
                const float next = output * hyperbolic_tangent(cell[own][row]);
                hidden[1 - from][unit][row] = next;
                ((T *)a.out)[(start + row) * a.units + unit] = from_float<T>(next);
            });
        });
        barrier();
        from = 1 - from;
    }
    rows.for_each_unit([&](u32 own, u32 unit) {
        rows.store(a.last_hidden, unit, hidden[from][unit]);
        rows.store(a.last_cell, unit, cell[own]);
    });
}

template <class T, bool RESET_FIRST> HIPVIT_DEVICE void gru(const RecurrenceArgs &a, States (&hidden)[2]) {
    const Rows<T> rows(a);
    rows.for_each_unit([&](u32, u32 unit) { rows.load(a.first_hidden, unit, hidden[0][unit]); });
    barrier();
    float update[OWN][RECURRENCE_ROWS] = {}, candidate[OWN][RECURRENCE_ROWS] = {};
    u32 from = 0;
    for (u32 step = 0; step < a.steps; ++step) {
        const u64 start = rows.step(step);
        rows.for_each_unit([&](u32 own, u32 unit) {
            constexpr u32 GATES = RESET_FIRST ? 2 : 3;
            float sum[GATES][RECURRENCE_ROWS];
            products<T, 0, GATES, 3>(a, hidden[from], unit, sum);
            rows.for_each([&](u32 row) {
                const T *gates = (const T *)a.gates + (start + row) * 3 * a.units + unit;
                update[own][row] = logistic(to_float(gates[0]) + sum[0][row]);
                const float reset = logistic(to_float(gates[a.units]) + sum[1][row]);
                candidate[own][row] = to_float(gates[2 * a.units]);
                if constexpr (RESET_FIRST) {
                    hidden[1 - from][unit][row] = reset * hidden[from][unit][row];
                } else {
                    const float product = sum[2][row] + to_float(((const T *)a.bias)[unit]);
                    candidate[own][row] = multiply_add(reset, product, candidate[own][row]);
                }
            });
        });
        if constexpr (RESET_FIRST) {
            // States that were reset take the place of the next ones until all threads have read them.
            barrier();
            rows.for_each_unit([&](u32 own, u32 unit) {
                float sum[1][RECURRENCE_ROWS];
                products<T, 2, 1, 3>(a, hidden[1 - from], unit, sum);
                rows.for_each([&](u32 row) { candidate[own][row] += sum[0][row]; });
            });
            barrier();
        }
        rows.for_each_unit([&](u32 own, u32 unit) {
            rows.for_each([&](u32 row) {
                const float value = hyperbolic_tangent(candidate[own][row]);
                const float next = multiply_add(update[own][row], hidden[from][unit][row] - value, value);
                hidden[1 - from][unit][row] = next;
                ((T *)a.out)[(start + row) * a.units + unit] = from_float<T>(next);
            });
        });
        barrier();
        from = 1 - from;
    }
    rows.for_each_unit([&](u32, u32 unit) { rows.store(a.last_hidden, unit, hidden[from][unit]); });
}

template <class T> HIPVIT_DEVICE void recurrence(const RecurrenceArgs &a) {
    HIPVIT_LDS static States hidden[2];
    if (u64(block_index()) * RECURRENCE_ROWS >= a.rows) return; // a whole block
    if (a.gate_count == 4) {
        lstm<T>(a, hidden);
    } else if (a.reset_first) {
        gru<T, true>(a, hidden);
    } else {
        gru<T, false>(a, hidden);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(RECURRENCE_THREADS) name##_##T(RecurrenceArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, recurrence)
