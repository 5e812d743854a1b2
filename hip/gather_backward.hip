// gather_backward: the sum of the slices of dy with each index.
//
// Shapes: indices i32 [count]; dy T [count, inner]; out T [rows, inner]. All row-major.
// Alignment: any. The lanes of a wave load consecutive channels.
// Accumulator: f32. The slices of a row are added in the order of their places.
// Geometry: blocks of GATHER_BACKWARD_THREADS, GATHER_BACKWARD_CHANNELS · WAVE channels of a row per wave. Each wave reads all indices, WAVE at
//   a time.
#include "gather_backward.h"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

// Returns the row of an index.
HIPVIT_DEVICE u32 row_of(const GatherBackwardArgs &a, u32 place) {
    i64 at = a.indices[place];
    if (at < 0) at += a.rows;
    return u32(at < 0 ? 0 : at < a.rows ? at : i64(a.rows) - 1);
}

template <class T> HIPVIT_DEVICE void gather_backward(const GatherBackwardArgs &a) {
    constexpr u32 CHANNELS = GATHER_BACKWARD_CHANNELS * WAVE;
    const u32 per_row = (a.inner + CHANNELS - 1) / CHANNELS, lane = u32(lane_index());
    const u64 wave = u64(block_index()) * (GATHER_BACKWARD_THREADS / WAVE) + u32(wave_index());
    const u64 row = divide(wave, per_row);
    if (row >= a.rows) return;
    const u32 first = u32(wave - row * per_row) * CHANNELS + lane;
    float sum[GATHER_BACKWARD_CHANNELS] = {};
    for (u32 start = 0; start < a.count; start += WAVE) {
        const u32 place = start + lane;
        const bool is_here = place < a.count && row_of(a, place) == row;
        if (!any_lane(is_here)) continue;
        const u32 end = a.count - start < u32(WAVE) ? a.count - start : u32(WAVE);
        for (u32 from = 0; from < end; ++from) {
            if (!read_lane(u32(is_here), int(from))) continue;
            const T *dy = (const T *)a.dy + u64(start + from) * a.inner;
#pragma unroll
            for (u32 i = 0; i < GATHER_BACKWARD_CHANNELS; ++i)
                if (first + i * WAVE < a.inner) sum[i] += to_float(dy[first + i * WAVE]);
        }
    }
    T *out = (T *)a.out + row * a.inner;
#pragma unroll
    for (u32 i = 0; i < GATHER_BACKWARD_CHANNELS; ++i)
        if (first + i * WAVE < a.inner) out[first + i * WAVE] = from_float<T>(sum[i]);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(GATHER_BACKWARD_THREADS) name##_##T(GatherBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, gather_backward)
