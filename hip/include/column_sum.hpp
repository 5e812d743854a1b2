// Sums of the columns of a chunk of rows, in a fixed order.
#pragma once
#include "column_sum.h"
#include "vec128.hpp"

namespace hipvit {

// Adds the columns of one chunk of `rows` rows, and stores the sums to a row of `out`. `source` has the elements:
//
//   Source::Raw                     what a thread loads of a vec128
//   source.load(at, valid, raw)     loads the `valid` elements from `at` on
//   source.value(at, valid, raw)    sets `raw.value` to the VEC<From> elements to add
//   Source::AHEAD                   how many are loaded before the first is used
//
// Geometry: blocks of VECS vec128s of columns × SLICES slices of the chunk's rows, which are combined through LDS in their order. Grid: chunks ×
// groups of VECS vec128s. No block waits for another, and there are no atomics: equal operands give equal bits.
template <class From, class To, u32 VECS = COLUMN_SUM_VECS, u32 SLICES = COLUMN_SUM_SLICES, class Source>
HIPVIT_DEVICE void sum_columns(u32 rows, u32 columns, u32 chunk_rows, To *out, const Source &source) {
    constexpr u32 WIDTH = VECS * VEC<From>, AHEAD = Source::AHEAD;
    HIPVIT_LDS static float partial[SLICES][WIDTH];
    const u32 groups = (columns + WIDTH - 1) / WIDTH;
    const u32 chunk = block_index() / groups, first_column = block_index() % groups * WIDTH;
    const u32 lane = thread_index() % VECS, slice = thread_index() / VECS;
    const u32 column = first_column + lane * VEC<From>;
    const u64 start = u64(chunk) * chunk_rows, end = start + chunk_rows < rows ? start + chunk_rows : rows;

    float total[VEC<From>];
#pragma unroll
    for (u32 i = 0; i < VEC<From>; ++i) total[i] = 0.0f;
    if (column < columns) {
        const u32 valid = columns - column < VEC<From> ? columns - column : VEC<From>;
        for (u64 row = start + slice; row < end; row += AHEAD * SLICES) {
            typename Source::Raw raw[AHEAD];
#pragma unroll
            for (u32 k = 0; k < AHEAD; ++k) {
                const u64 at = row + k * SLICES;
                if (at < end) source.load(at * columns + column, valid, raw[k]);
            }
#pragma unroll
            for (u32 k = 0; k < AHEAD; ++k) {
                const u64 at = row + k * SLICES;
                if (at >= end) continue;
                source.value(at * columns + column, valid, raw[k]);
#pragma unroll
                for (u32 i = 0; i < VEC<From>; ++i) total[i] += raw[k].value[i];
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < VEC<From>; ++i) partial[slice][lane * VEC<From> + i] = total[i];
    barrier();
    const u32 mine = first_column + thread_index();
    if (thread_index() >= WIDTH || mine >= columns) return;
    float sum = 0.0f;
    for (u32 s = 0; s < SLICES; ++s) sum += partial[s][thread_index()];
    out[u64(chunk) * columns + mine] = from_float<To>(sum);
}

} // namespace hipvit
