// column_sum: the sum of the rows of a matrix, in a fixed order. column_sum_partial: the sum of each chunk of rows, in f32.
// column_sum_total: the sum of such partial sums.
//
// Shapes: x [rows, columns]; out [⌈rows / chunk⌉, columns]. Both row-major, and T, except that partial sums are f32.
// Alignment: any; vec128 access where columns and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of COLUMN_SUM_VECS vec128s of columns × COLUMN_SUM_SLICES slices of a chunk's rows, which are combined through LDS in
//   their order. Grid: chunks × groups of COLUMN_SUM_VECS vec128s. No block waits for another, and there are no atomics: equal operands
//   give equal bits.
#include "column_sum.h"
#include "vec128.hpp"

using namespace hipvit;

template <class From, class To> HIPVIT_DEVICE void sum_columns(const ColumnSumArgs &a) {
    constexpr u32 WIDTH = COLUMN_SUM_VECS * VEC<From>;
    HIPVIT_LDS static float partial[COLUMN_SUM_SLICES][WIDTH];
    const u32 groups = (a.columns + WIDTH - 1) / WIDTH;
    const u32 chunk = block_index() / groups, first_column = block_index() % groups * WIDTH;
    const u32 vec = thread_index() % COLUMN_SUM_VECS, slice = thread_index() / COLUMN_SUM_VECS;
    const u32 column = first_column + vec * VEC<From>;
    const u64 start = u64(chunk) * a.chunk, end = start + a.chunk < a.rows ? start + a.chunk : a.rows;

    float total[VEC<From>];
#pragma unroll
    for (u32 i = 0; i < VEC<From>; ++i) total[i] = 0.0f;
    if (column < a.columns) {
        const u32 valid = a.columns - column < VEC<From> ? a.columns - column : VEC<From>;
        for (u64 row = start + slice; row < end; row += COLUMN_SUM_SLICES) {
            const From *from = (const From *)a.x + row * a.columns + column;
            float value[VEC<From>];
            load_vec(from, valid, aligned(from, VEC128_BYTES), value);
#pragma unroll
            for (u32 i = 0; i < VEC<From>; ++i) total[i] += value[i];
        }
    }
#pragma unroll
    for (u32 i = 0; i < VEC<From>; ++i) partial[slice][vec * VEC<From> + i] = total[i];
    barrier();
    const u32 mine = first_column + thread_index();
    if (thread_index() >= WIDTH || mine >= a.columns) return;
    float sum = 0.0f;
    for (u32 s = 0; s < COLUMN_SUM_SLICES; ++s) sum += partial[s][thread_index()];
    ((To *)a.out)[u64(chunk) * a.columns + mine] = from_float<To>(sum);
}

template <class T> HIPVIT_DEVICE void column_sum(const ColumnSumArgs &a) { sum_columns<T, T>(a); }
template <class T> HIPVIT_DEVICE void column_sum_partial(const ColumnSumArgs &a) { sum_columns<T, f32>(a); }
template <class T> HIPVIT_DEVICE void column_sum_total(const ColumnSumArgs &a) { sum_columns<f32, T>(a); }

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(COLUMN_SUM_VECS * COLUMN_SUM_SLICES) name##_##T(ColumnSumArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, column_sum)
HIPVIT_FOR_DTYPES(ENTRY, column_sum_partial)
HIPVIT_FOR_DTYPES(ENTRY, column_sum_total)
