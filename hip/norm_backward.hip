// layer_norm_backward: with n = (x − mean(x)) / √(variance(x) + ε) and g = dy · weight, dx = (g − mean(g) − n · mean(g · n)) /
// √(variance(x) + ε) over the channels. rms_norm_backward: n = x / √(mean(x²) + ε), dx = (g − n · mean(g · n)) / √(mean(x²) + ε). With
// `fixed`, without n · mean(g · n). Both: partial sums of dy · n and dy over the rows, the gradients of weight and bias. The residual,
// another gradient of x, is added to dx. Entries `_sums`: also partial sums of dx, with the residual.
//
// Shapes: x, dy, residual, dx T [rows, channels], residual or null; weight T [channels]; dweight, dbias, sums f32 [blocks, channels] or null. All
//   row-major; dx may alias x, dy or residual.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32. First the mean, then the squares of the centred values.
// Geometry: `blocks` blocks, each with its own rows: those whose number is the block's or wave's, modulo their number. Equal operands give
//   equal bits.
//   - Entries with a number: a row of at most so many channels per wave, in whole vec128s, in blocks of NORM_BACKWARD_THREADS. The wave
//     keeps its row and the sums of its columns in registers, and loads the next row before it reduces. LDS combines the waves' sums.
//   - Entries `_wide`: a row per block of ROW_THREADS, of any length and alignment.
#include "norm_backward.h"
#include "row.hpp"

using namespace hipvit;

// A row of a wave as stored. Lane l has the vec128s l, l + WAVE, ….
template <class T, u32 KEPT> struct StoredRow {
    Vec<T> vec[KEPT];

    HIPVIT_DEVICE void load(const void *rows, u64 row, u32 vecs) {
        const Vec<T> *const from = (const Vec<T> *)rows + row * vecs;
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) {
            const u32 at = lane_index() + s * WAVE;
            vec[s].whole = at < vecs ? from[at].whole : Vec128{};
        }
    }
    // Otherwise the compiler keeps the elements as floats, in twice the registers.
    HIPVIT_DEVICE void keep() {
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s)
#pragma unroll
            for (u32 i = 0; i < 4; ++i) vec[s].whole.word[i] = opaque(vec[s].whole.word[i]);
    }
};

// Adds the sums of the block's waves, in their order, and stores them.
template <u32 WAVES, u32 CHANNELS, u32 KEPT, u32 VEC>
HIPVIT_DEVICE void store_sums(float (&lds)[WAVES][CHANNELS], const float (&sums)[KEPT][VEC], u32 channels, float *out) {
    barrier(); // the previous sums have been read
#pragma unroll
    for (u32 s = 0; s < KEPT; ++s) {
        const u32 column = (lane_index() + s * WAVE) * VEC;
        if (column >= channels) continue;
#pragma unroll
        for (u32 i = 0; i < VEC; ++i) lds[wave_index()][column + i] = sums[s][i];
    }
    barrier();
    for (u32 at = thread_index(); at < channels; at += NORM_BACKWARD_THREADS) {
        float sum = lds[0][at];
#pragma unroll
        for (u32 wave = 1; wave < WAVES; ++wave) sum += lds[wave][at];
        out[at] = sum;
    }
}

template <class T, bool RMS, bool SUMS, u32 CHANNELS> HIPVIT_DEVICE void norm_backward(const NormBackwardArgs &a) {
    constexpr u32 WAVES = NORM_BACKWARD_THREADS / WAVE, KEPT = (CHANNELS + WAVE * VEC<T> - 1) / (WAVE * VEC<T>);
    using Values = float[KEPT][VEC<T>];
    HIPVIT_LDS static float lds[WAVES][CHANNELS];
    const u32 vecs = a.channels / VEC<T>;
    const float channels = float(a.channels);
    const auto for_each = [](const auto &each) {
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s)
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) each(s, i);
    };
    Values dweight, dbias, sums;
    for_each([&](u32 s, u32 i) { dweight[s][i] = dbias[s][i] = sums[s][i] = 0.0f; });
    using Stored = StoredRow<T, KEPT>;
    // RDNA would spill. The weight then comes from the cache, and the residual is loaded when it is added.
    constexpr bool TIGHT = HIPVIT_AMD && WAVE == 32 && SUMS && CHANNELS > 768;
    constexpr bool PREFETCH = sizeof(T) == 2 && !TIGHT; // in f32, too many registers
    Stored weight, next_x, next_dy;
    if constexpr (!TIGHT) weight.load(a.weight, 0, vecs);
    u64 row = u64(block_index()) * WAVES + wave_index();
    const auto load = [&](Stored &of_x, Stored &of_dy, u64 at) {
        if (at < a.rows) of_x.load(a.x, at, vecs), of_dy.load(a.dy, at, vecs);
    };
    if constexpr (PREFETCH) load(next_x, next_dy, row);
    while (row < a.rows) {
        const u64 next = row + a.blocks * WAVES;
        Stored x, dy;
        if constexpr (PREFETCH) {
            x = next_x, dy = next_dy;
            load(next_x, next_dy, next);
        } else {
            load(x, dy, row);
        }
        float total = 0.0f;
        if constexpr (!RMS) for_each([&](u32 s, u32 i) { total += x.vec[s][i]; });
        x.keep();
        Stored residual;
        if (a.residual && !TIGHT) residual.load(a.residual, row, vecs);
        if constexpr (TIGHT) weight.load(a.weight, 0, vecs);
        const float mean = RMS ? 0.0f : reduce_wave<Sum>(total) / channels;
        const auto centred = [&](u32 s, u32 i) {
            if constexpr (RMS) return x.vec[s][i];
            return lane_index() + s * WAVE < vecs ? x.vec[s][i] - mean : 0.0f;
        };
        float squares = 0.0f, sum = 0.0f, dot = 0.0f;
        for_each([&](u32 s, u32 i) {
            const float scaled = dy.vec[s][i] * weight.vec[s][i], of_mean = centred(s, i);
            squares = multiply_add(of_mean, of_mean, squares);
            sum += scaled;
            dot = multiply_add(scaled, of_mean, dot);
        });
        x.keep(), dy.keep();
        squares = reduce_wave<Sum>(squares), sum = reduce_wave<Sum>(sum), dot = reduce_wave<Sum>(dot);
        const float inverse = 1.0f / square_root(squares / channels + a.epsilon);
        sum = RMS ? 0.0f : sum / channels;
        dot = a.fixed ? 0.0f : dot * inverse / channels;
        if constexpr (TIGHT) {
            weight.load(a.weight, 0, vecs);
            x.keep(), dy.keep(), weight.keep();
            if (a.residual) residual.load(a.residual, row, vecs), residual.keep();
        }
        Vec<T> *const to = (Vec<T> *)a.dx + row * vecs;
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s) {
            Vec<T> result;
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) {
                const float n = centred(s, i) * inverse, g = dy.vec[s][i];
                dweight[s][i] = multiply_add(g, n, dweight[s][i]);
                dbias[s][i] += g;
                float dx = (multiply_add(-dot, n, g * weight.vec[s][i]) - sum) * inverse;
                if (a.residual) dx += residual.vec[s][i];
                result.element[i] = from_float<T>(dx);
                if constexpr (SUMS) sums[s][i] += dx;
            }
            if (const u32 at = lane_index() + s * WAVE; at < vecs) to[at].whole = result.whole;
        }
        row = next;
    }
    const u64 to = u64(block_index()) * a.channels;
    if (a.dweight) store_sums(lds, dweight, a.channels, a.dweight + to);
    if (a.dbias) store_sums(lds, dbias, a.channels, a.dbias + to);
    if constexpr (SUMS) store_sums(lds, sums, a.channels, a.sums + to);
}

// A thread's columns of a row of any length: vec128s rank, rank + size, ….
template <class T> struct Columns {
    static constexpr u32 KEPT = ROW_REGISTERS / VEC<T>;
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
    HIPVIT_DEVICE void store_sums(float *out, const Values &sums) const {
        for_each([&](u32 s, u32 i) {
            if (i < valid(s)) out[column(s) + i] = sums[s][i];
        });
    }
    // Calls each(s, i) for the thread's elements, and those beyond the row.
    template <class Each> HIPVIT_DEVICE static void for_each(const Each &each) {
#pragma unroll
        for (u32 s = 0; s < KEPT; ++s)
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) each(s, i);
    }
};

template <class T, bool RMS, bool SUMS> HIPVIT_DEVICE void norm_backward_wide(const NormBackwardArgs &a) {
    HIPVIT_LDS static float scratch[ROW_THREADS / WAVE];
    const RowGroup<ROW_THREADS> group{true, scratch};
    using Cols = Columns<T>;
    const float channels = float(a.channels);

    typename Cols::Values dweight, dbias, sums;
    Cols::for_each([&](u32 s, u32 i) { dweight[s][i] = dbias[s][i] = sums[s][i] = 0.0f; });
    for (u64 row = group.row(); row < a.rows; row += a.blocks) {
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
        if (a.residual) {
            columns.load((const T *)a.residual + start, normal);
            Cols::for_each([&](u32 s, u32 i) { gradient[s][i] += normal[s][i]; });
        }
        columns.store((T *)a.dx + start, gradient);
        if constexpr (SUMS) Cols::for_each([&](u32 s, u32 i) { sums[s][i] += gradient[s][i]; });
    }
    const Cols columns{a.channels, group.rank(), group.size()};
    const u64 to = u64(block_index()) * a.channels;
    if (a.dweight) columns.store_sums(a.dweight + to, dweight);
    if (a.dbias) columns.store_sums(a.dbias + to, dbias);
    if constexpr (SUMS) columns.store_sums(a.sums + to, sums);
}

#define ROW_ENTRY(name, RMS, SUMS, T, CHANNELS)                                                                        \
    HIPVIT_KERNEL(NORM_BACKWARD_THREADS) name##_##CHANNELS##_##T(NormBackwardArgs a) { norm_backward<T, RMS, SUMS, CHANNELS>(a); }
#define ENTRIES(name, RMS, SUMS, T)                                                                                    \
    ROW_ENTRY(name, RMS, SUMS, T, 512)                                                                                 \
    ROW_ENTRY(name, RMS, SUMS, T, 768)                                                                                 \
    ROW_ENTRY(name, RMS, SUMS, T, 1024)                                                                                \
    HIPVIT_KERNEL(ROW_THREADS) name##_wide_##T(NormBackwardArgs a) { norm_backward_wide<T, RMS, SUMS>(a); }
#define ENTRY(name, T) ENTRIES(name, false, false, T)
HIPVIT_FOR_DTYPES(ENTRY, layer_norm_backward)
#define SUMS_ENTRY(name, T) ENTRIES(name, false, true, T)
HIPVIT_FOR_DTYPES(SUMS_ENTRY, layer_norm_backward_sums)
#define RMS_ENTRY(name, T) ENTRIES(name, true, false, T)
HIPVIT_FOR_DTYPES(RMS_ENTRY, rms_norm_backward)
