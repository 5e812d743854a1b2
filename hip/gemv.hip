// gemv: out = activation(x · weightᵀ + bias) + residual for few rows of x, whose time is that of reading the weight.
//
// Shapes: x T [rows, inner], rows <= GEMV_ROWS; weight T [channels, inner]; bias T [channels] or null; residual T [rows, channels] or null;
//   out T [rows, channels]. All row-major; out may alias residual.
// Alignment: any; vec128 access where inner and the addresses allow it.
// Accumulator: f32. An element is summed in one order, whatever the other rows and channels.
// Geometry: a block of GEMV_THREADS per GEMV_CHANNELS channels. Its threads divide the inner elements.
// Entries: gemv_<R> for up to R rows.
#include "gemv.h"
#include "activation.hpp"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

HIPVIT_DEVICE u32 at_most(u32 a, u32 b) { return a < b ? a : b; }

// Sums N <= WAVE values over the wave's lanes. Lane l gets the sum of value l / (WAVE / N). Each step halves the values of a lane, so that
// N − 1 exchanges take the place of N · log2(N).
template <u32 N> HIPVIT_DEVICE float sum_values(float (&x)[N]) {
    int bit = WAVE / 2;
#pragma unroll
    for (u32 half = N / 2; half > 0; half /= 2, bit /= 2) {
        // A blend of bits: clang would index x by a conditional, which compares with each index.
        const u32 upper = lane_index() & bit ? ~0u : 0u;
#pragma unroll
        for (u32 i = 0; i < half; ++i) {
            const u32 low = bits_of(x[i]), high = bits_of(x[i + half]), differing = low ^ high;
            const u32 sent = high ^ (differing & upper), kept = low ^ (differing & upper);
            x[i] = float_of(kept) + float_of(read_lane(sent, lane_index() ^ bit));
        }
    }
    return reduce_lanes<Sum>(x[0], 1, bit);
}

// Loads WIDTH elements: a vec128, or one element.
template <class T, u32 WIDTH> HIPVIT_DEVICE void load(const T *from, float (&x)[WIDTH]) {
    if constexpr (WIDTH == 1) {
        x[0] = to_float(*from);
    } else {
        load_vec(from, WIDTH, true, x);
    }
}

// Adds the products of this thread's inner elements, WIDTH per step, to the sums of ROWS rows and the block's channels.
template <class T, u32 ROWS, u32 WIDTH>
HIPVIT_DEVICE void accumulate(const GemvArgs &a, u32 first, float (&sum)[ROWS * GEMV_CHANNELS]) {
    const T *x = (const T *)a.x, *weight = (const T *)a.weight;
#pragma unroll 1
    for (u32 k = thread_index() * WIDTH; k < a.inner; k += GEMV_THREADS * WIDTH) {
        float w[GEMV_CHANNELS][WIDTH];
#pragma unroll
        for (u32 c = 0; c < GEMV_CHANNELS; ++c)
            load(weight + u64(at_most(first + c, a.channels - 1)) * a.inner + k, w[c]);
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            float row[WIDTH];
            load(x + u64(at_most(r, a.rows - 1)) * a.inner + k, row);
#pragma unroll
            for (u32 c = 0; c < GEMV_CHANNELS; ++c)
#pragma unroll
                for (u32 i = 0; i < WIDTH; ++i)
                    sum[r * GEMV_CHANNELS + c] = multiply_add(row[i], w[c][i], sum[r * GEMV_CHANNELS + c]);
        }
    }
}

template <class T, u32 ROWS> HIPVIT_DEVICE void gemv(const GemvArgs &a) {
    constexpr u32 VALUES = ROWS * GEMV_CHANNELS, LANES = WAVE / VALUES;
    HIPVIT_LDS static float sums[GEMV_THREADS / WAVE][VALUES];
    const u32 first = block_index() * GEMV_CHANNELS;
    float sum[VALUES] = {};
    if (a.inner % VEC<T> == 0 && aligned(a.x, 16) && aligned(a.weight, 16)) {
        accumulate<T, ROWS, VEC<T>>(a, first, sum);
    } else {
        accumulate<T, ROWS, 1>(a, first, sum);
    }
    const float of_wave = sum_values(sum);
    if (lane_index() % LANES == 0) sums[wave_index()][lane_index() / LANES] = of_wave;
    barrier();
    const u32 row = thread_index() / GEMV_CHANNELS, channel = first + thread_index() % GEMV_CHANNELS;
    if (thread_index() >= VALUES || row >= a.rows || channel >= a.channels) return;
    float value = 0.0f;
#pragma unroll
    for (u32 wave = 0; wave < GEMV_THREADS / WAVE; ++wave) value += sums[wave][thread_index()];
    if (a.bias) value += to_float(((const T *)a.bias)[channel]);
    float activated[1] = {value};
    activate_as<T>(a.activation, activated);
    const u64 at = u64(row) * a.channels + channel;
    if (a.residual) activated[0] += to_float(((const T *)a.residual)[at]);
    ((T *)a.out)[at] = from_float<T>(activated[0]);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(GEMV_THREADS) name##_1_##T(GemvArgs a) { name<T, 1>(a); }                                            \
    HIPVIT_KERNEL(GEMV_THREADS) name##_2_##T(GemvArgs a) { name<T, 2>(a); }                                            \
    HIPVIT_KERNEL(GEMV_THREADS) name##_4_##T(GemvArgs a) { name<T, 4>(a); }
HIPVIT_FOR_DTYPES(ENTRY, gemv)
