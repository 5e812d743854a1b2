// column_sum: the sum of the rows of a matrix, in a fixed order. column_sum_partial: the sum of each chunk of rows, in f32.
// column_sum_total: the sum of such partial sums.
//
// Shapes: x [rows, columns]; out [⌈rows / chunk⌉, columns]. Both row-major, and T, except that partial sums are f32.
// Alignment: any; vec128 access where columns and the addresses allow it.
// Accumulator: f32.
// Geometry: include/column_sum.hpp.
#include "column_sum.hpp"

using namespace hipvit;

template <class From> struct Matrix {
    static constexpr u32 AHEAD = 4;
    struct Raw {
        float value[VEC<From>];
    };
    const From *x;

    HIPVIT_DEVICE void load(u64 at, u32 valid, Raw &raw) const { load_vec(x + at, valid, aligned(x + at, VEC128_BYTES), raw.value); }
    HIPVIT_DEVICE void value(u64, u32, Raw &) const {}
};

template <class T> HIPVIT_DEVICE void column_sum(const ColumnSumArgs &a) {
    sum_columns<T>(a.rows, a.columns, a.chunk, (T *)a.out, Matrix<T>{(const T *)a.x});
}
template <class T> HIPVIT_DEVICE void column_sum_partial(const ColumnSumArgs &a) {
    sum_columns<T>(a.rows, a.columns, a.chunk, (f32 *)a.out, Matrix<T>{(const T *)a.x});
}
template <class T> HIPVIT_DEVICE void column_sum_total(const ColumnSumArgs &a) {
    sum_columns<f32, T, COLUMN_TOTAL_VECS, COLUMN_TOTAL_SLICES>(a.rows, a.columns, a.chunk, (T *)a.out, Matrix<f32>{(const f32 *)a.x});
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(COLUMN_SUM_VECS * COLUMN_SUM_SLICES) name##_##T(ColumnSumArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, column_sum)
HIPVIT_FOR_DTYPES(ENTRY, column_sum_partial)
#define TOTAL_ENTRY(name, T)                                                                                           \
    HIPVIT_KERNEL(COLUMN_TOTAL_VECS * COLUMN_TOTAL_SLICES) name##_##T(ColumnSumArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(TOTAL_ENTRY, column_sum_total)
