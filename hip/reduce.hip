// reduce: sums, means, extrema, products and norms along an axis.
//
// Shapes: x T [outer, length, inner]; out T [outer, inner]. All row-major.
// Alignment: any; vec128 access of rows where the addresses allow it.
// Accumulator: f32. Each result has a fixed order of sums, whatever the other results.
// Geometry: reduce_rows (inner is 1): blocks of ROW_THREADS; a row per wave, or per block (whole_block). reduce_columns: blocks of
//   REDUCE_COLUMNS columns × REDUCE_SLICES slices of the axis, which are combined through LDS.
#include "reduce.h"
#include "row.hpp"

using namespace hipvit;

struct Least {
    static HIPVIT_DEVICE float identity() { return infinity(); }
    static HIPVIT_DEVICE float combine(float a, float b) { return smaller(a, b); }
};
struct Product {
    static HIPVIT_DEVICE float identity() { return 1.0f; }
    static HIPVIT_DEVICE float combine(float a, float b) { return a * b; }
};

// Combines an element with the total.
struct Sums {
    using Combine = Sum;
    static HIPVIT_DEVICE float add(float total, float x) { return total + x; }
};
struct Magnitudes {
    using Combine = Sum;
    static HIPVIT_DEVICE float add(float total, float x) { return total + (x < 0.0f ? -x : x); }
};
struct Squares {
    using Combine = Sum;
    static HIPVIT_DEVICE float add(float total, float x) { return multiply_add(x, x, total); }
};
struct Largest {
    using Combine = Max;
    static HIPVIT_DEVICE float add(float total, float x) { return larger(total, x); }
};
struct Smallest {
    using Combine = Least;
    static HIPVIT_DEVICE float add(float total, float x) { return smaller(total, x); }
};
struct Products {
    using Combine = Product;
    static HIPVIT_DEVICE float add(float total, float x) { return total * x; }
};

// Calls reduce(F) with the functions of the kind. `reduce` returns the total of all elements, in every thread that stores it. The sum of
// exponentials takes the maximum first: exponentials(max) returns it.
template <class Reduce, class Exponentials>
HIPVIT_DEVICE float by_kind(const ReduceArgs &a, const Reduce &reduce, const Exponentials &exponentials) {
    switch (Reduction(a.kind)) {
    case Reduction::Mean: return reduce(Sums()) / float(a.length);
    case Reduction::Max: return reduce(Largest());
    case Reduction::Min: return reduce(Smallest());
    case Reduction::Product: return reduce(Products());
    case Reduction::L1: return reduce(Magnitudes());
    case Reduction::L2: return square_root(reduce(Squares()));
    case Reduction::SumSquare: return reduce(Squares());
    case Reduction::LogSumExp: {
        const float most = reduce(Largest());
        const float shift = most == -infinity() ? 0.0f : most;
        return shift + LN_2 * fast_log2(exponentials(shift));
    }
    default: return reduce(Sums());
    }
}

template <class T> HIPVIT_DEVICE void reduce_rows(const ReduceArgs &a) {
    HIPVIT_LDS static float scratch[ROW_THREADS / WAVE];
    const RowGroup<ROW_THREADS> group{a.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.outer) return; // a whole wave, or a whole block
    const T *x = (const T *)a.x + u64(index) * a.length;
    auto load = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) { load_vec(x + column, valid, aligned(x, 16), vec); };
    auto reduce = [&](auto f) {
        using F = decltype(f);
        float total = F::Combine::identity();
        Row<T, 0> row(a.length, group);
        row.again(load, [&](u32, float v) { total = F::add(total, v); });
        return group.template reduce<typename F::Combine>(total);
    };
    auto exponentials = [&](float shift) {
        float total = 0.0f;
        Row<T, 0> row(a.length, group);
        row.again(load, [&](u32, float v) { total += fast_exp2((v - shift) * LOG2_E); });
        return group.template reduce<Sum>(total);
    };
    const float total = by_kind(a, reduce, exponentials);
    if (group.rank() == 0) ((T *)a.out)[index] = from_float<T>(total);
}

template <class T> HIPVIT_DEVICE void reduce_columns(const ReduceArgs &a) {
    HIPVIT_LDS static float partial[REDUCE_SLICES][REDUCE_COLUMNS];
    const u32 across = (a.inner + REDUCE_COLUMNS - 1) / REDUCE_COLUMNS;
    const u32 outer = block_index() / across;
    if (outer >= a.outer) return; // the whole block
    const u32 lane = thread_index() % REDUCE_COLUMNS, slice = thread_index() / REDUCE_COLUMNS;
    const u32 column = block_index() % across * REDUCE_COLUMNS + lane;
    const T *x = (const T *)a.x + u64(outer) * a.length * a.inner + column;
    // The threads of all slices call it, and get the total of their column.
    auto over_slices = [&](auto combine, float total) {
        using Op = decltype(combine);
        barrier(); // the previous reduction has read the slices
        partial[slice][lane] = total;
        barrier();
        total = partial[0][lane];
#pragma unroll
        for (u32 s = 1; s < REDUCE_SLICES; ++s) total = Op::combine(total, partial[s][lane]);
        return total;
    };
    auto for_each = [&](auto each) {
        if (column >= a.inner) return;
        for (u32 row = slice; row < a.length; row += REDUCE_SLICES) each(to_float(x[u64(row) * a.inner]));
    };
    auto reduce = [&](auto f) {
        using F = decltype(f);
        float total = F::Combine::identity();
        for_each([&](float v) { total = F::add(total, v); });
        return over_slices(typename F::Combine(), total);
    };
    auto exponentials = [&](float shift) {
        float total = 0.0f;
        for_each([&](float v) { total += fast_exp2((v - shift) * LOG2_E); });
        return over_slices(Sum(), total);
    };
    const float total = by_kind(a, reduce, exponentials);
    if (slice == 0 && column < a.inner) ((T *)a.out)[u64(outer) * a.inner + column] = from_float<T>(total);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ROW_THREADS) name##_rows_##T(ReduceArgs a) { name##_rows<T>(a); }                                    \
    HIPVIT_KERNEL(REDUCE_COLUMNS *REDUCE_SLICES) name##_columns_##T(ReduceArgs a) { name##_columns<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, reduce)
