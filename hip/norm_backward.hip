// layer_norm_backward: with n = (x − mean(x)) / √(variance(x) + ε) and g = dy · weight, dx = (g − mean(g) − n · mean(g · n)) /
// √(variance(x) + ε) over the channels. rms_norm_backward: n = x / √(mean(x²) + ε), dx = (g − n · mean(g · n)) / √(mean(x²) + ε). With
// `fixed`, without n · mean(g · n). Both: partial sums of dy · n and dy over the rows, the gradients of weight and bias.
//
// Shapes: x, dy, dx T [rows, channels]; weight T [channels]; dweight, dbias f32 [blocks, channels] or null. All row-major; dx may alias
//   x or dy.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32. First the mean, then the squares of the centred values.
// Geometry: `blocks` blocks of ROW_THREADS. A row per wave; in the entries `_wide`, a row per block. Each wave or block takes the rows whose
//   number is its own, modulo their number. It keeps its row and the sums of its columns in registers. The waves of a block add their
//   sums through LDS, in their order. Equal operands give equal bits.
#include "norm_backward.h"
#include "row.hpp"

using namespace hipvit;

// A thread's columns of a row: vec128s rank, rank + size, ….
template <class T, bool WIDE> struct Columns {
    static constexpr u32 KEPT = (WIDE ? ROW_REGISTERS : NORM_BACKWARD_ROW / WAVE) / VEC<T>;
    using Values = float[KEPT][VEC<T>];
    u32 channels, rank, size;

    HIPVIT_DEVICE u32 column(u32 s) const { return (rank + s * size) * VEC<T>; }
    // Number of the elements of vec128 `s` that exist.
    HIPVIT_DEVICE u32 valid(u32 s) const {
        const u32 at = column(s);
        return at >= channels ? 0 : channels - at < VEC<T> ? channels - at : VEC<T>;
    }
    // Loads the thread's columns of a row. Columns beyond the row become 0.
    HIPVIT_DEVICE void load(const T *row, Values &values) const {
        const bool vector = aligned(row, VEC128_BYTES);
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) load_vec(row + column(s), valid(s), vector, values[s]);
    }
    HIPVIT_DEVICE void store(T *row, const Values &values) const {
        const bool vector = aligned(row, VEC128_BYTES);
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) store_vec(row + column(s), valid(s), vector, values[s]);
    }
    // Calls each(s, i) for the thread's elements, and those beyond the row.
    template <class Each> HIPVIT_DEVICE static void for_each(const Each &each) {
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s)
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) each(s, i);
    }
};

// Adds the sums of the block's waves, in their order, and stores them. `lds` has an element for each channel, unless a block takes a row.
template <class T, bool WIDE>
HIPVIT_DEVICE void store_sums(const Columns<T, WIDE> &columns, float *lds, float *out,
                              const typename Columns<T, WIDE>::Values &sums) {
    if constexpr (WIDE) {
        columns.for_each([&](u32 s, u32 i) {
            if (i < columns.valid(s)) out[columns.column(s) + i] = sums[s][i];
        });
    } else {
        for (int wave = 0; wave < int(ROW_THREADS) / WAVE; ++wave) {
            barrier(); // the previous wave has written, or the previous sums have been read
            if (wave != wave_index()) continue;
            columns.for_each([&](u32 s, u32 i) {
                const u32 at = columns.column(s) + i;
                lds[at] = wave ? lds[at] + sums[s][i] : sums[s][i];
            });
        }
        barrier();
        for (u32 at = thread_index(); at < columns.channels; at += ROW_THREADS) out[at] = lds[at];
    }
}

template <class T, bool RMS, bool WIDE> HIPVIT_DEVICE void norm_backward(const NormBackwardArgs &a) {
    HIPVIT_LDS static float scratch[ROW_THREADS / WAVE];
    HIPVIT_LDS static float combined[WIDE ? 1 : NORM_BACKWARD_ROW];
    const RowGroup<ROW_THREADS> group{WIDE, scratch};
    using Cols = Columns<T, WIDE>;
    const u32 groups = a.blocks * (WIDE ? 1 : ROW_THREADS / WAVE);
    const float channels = float(a.channels);

    typename Cols::Values dweight, dbias;
    Cols::for_each([&](u32 s, u32 i) { dweight[s][i] = dbias[s][i] = 0.0f; });
    // All threads of a group take the same rows.
    for (u64 row = group.row(); row < a.rows; row += groups) {
        // Otherwise the compiler keeps a mask of lanes for each element in SGPRs, and spills.
        const Cols columns{opaque(a.channels), group.rank(), group.size()};
        const u64 start = row * a.channels;
        typename Cols::Values normal, gradient;
        columns.load((const T *)a.x + start, normal);
        columns.load((const T *)a.dy + start, gradient);
        float mean = 0.0f;
        if constexpr (!RMS) {
            float total = 0.0f;
            Cols::for_each([&](u32 s, u32 i) { total += normal[s][i]; });
            mean = group.template reduce<Sum>(total) / channels;
        }
        float squares = 0.0f;
        Cols::for_each([&](u32 s, u32 i) {
            if constexpr (!RMS) normal[s][i] = i < columns.valid(s) ? normal[s][i] - mean : 0.0f;
            squares = multiply_add(normal[s][i], normal[s][i], squares);
        });
        const float variance = group.template reduce<Sum>(squares) / channels;
        const float inverse = 1.0f / square_root(variance + a.epsilon);
        float sum = 0.0f, dot = 0.0f;
        typename Cols::Values weight;
        columns.load((const T *)a.weight, weight);
        Cols::for_each([&](u32 s, u32 i) {
            normal[s][i] *= inverse;
            dweight[s][i] = multiply_add(gradient[s][i], normal[s][i], dweight[s][i]);
            dbias[s][i] += gradient[s][i];
            gradient[s][i] *= weight[s][i];
            sum += gradient[s][i];
            dot = multiply_add(gradient[s][i], normal[s][i], dot);
        });
        sum = RMS ? 0.0f : group.template reduce<Sum>(sum) / channels;
        dot = a.fixed ? 0.0f : group.template reduce<Sum>(dot) / channels;
        Cols::for_each([&](u32 s, u32 i) {
            gradient[s][i] = (multiply_add(-dot, normal[s][i], gradient[s][i]) - sum) * inverse;
        });
        columns.store((T *)a.dx + start, gradient);
    }
    const Cols columns{a.channels, group.rank(), group.size()};
    const u64 to = u64(block_index()) * a.channels;
    if (a.dweight) store_sums(columns, combined, a.dweight + to, dweight);
    if (a.dbias) store_sums(columns, combined, a.dbias + to, dbias);
}

#define ENTRIES(name, RMS, T)                                                                                          \
    HIPVIT_KERNEL(ROW_THREADS) name##_##T(NormBackwardArgs a) { norm_backward<T, RMS, false>(a); }                     \
    HIPVIT_KERNEL(ROW_THREADS) name##_wide_##T(NormBackwardArgs a) { norm_backward<T, RMS, true>(a); }
#define ENTRY(name, T) ENTRIES(name, false, T)
HIPVIT_FOR_DTYPES(ENTRY, layer_norm_backward)
#define RMS_ENTRY(name, T) ENTRIES(name, true, T)
HIPVIT_FOR_DTYPES(RMS_ENTRY, rms_norm_backward)
