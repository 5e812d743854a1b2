// Depthwise convolutions of images, channels last: depthwise_conv (any windows), and depthwise_conv_{3,5,7}_{wide,narrow,strided} (square
// kernels of that size without dilation).
//
// Shapes: see depthwise_conv.h. All row-major.
// Alignment: depthwise_conv any; vec128 access where channels and the addresses allow it. The others: 4 bytes, and an even number of
//   channels. Their tensors have less than 2³¹ elements.
// Accumulator: f32.
// Geometry:
//   depthwise_conv: blocks of ELEMENTWISE_THREADS, DEPTHWISE_VECS vec128s of channels × runs of DEPTHWISE_COLUMNS adjacent pixels, a run per
//     thread.
//   The others: blocks of DEPTHWISE_TILE_THREADS, DEPTHWISE_TILE_WORDS words of channels × tiles of DEPTHWISE_WIDE_COLUMNS or
//     DEPTHWISE_NARROW_COLUMNS by DEPTHWISE_ROWS pixels, a tile per thread. Strided tiles have one row. A thread reads a row of the image
//     once for all windows of its tile, and each weight once.
#include "depthwise_conv.h"
#include "activation.hpp"
#include "windows.hpp"

using namespace hipvit;

// Adds the bias, activates, and adds the residual.
template <class T>
HIPVIT_DEVICE void finish(const void *bias, const void *residual, void *out, u64 at, u32 channel, u32 valid, u32 activation,
                          float (&value)[VEC<T>]) {
    float add[VEC<T>];
    if (bias) {
        const T *from = (const T *)bias + channel;
        load_vec(from, valid, aligned(from, 16), add);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += add[i];
    }
    activate_as<T>(activation, value);
    if (residual) {
        const T *from = (const T *)residual + at;
        load_vec(from, valid, aligned(from, 16), add);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += add[i];
    }
    T *to = (T *)out + at;
    store_vec(to, valid, aligned(to, 16), value);
}

template <class T> HIPVIT_DEVICE void depthwise_conv(const DepthwiseConvArgs &a) {
    constexpr u32 CHANNELS = DEPTHWISE_VECS * VEC<T>, RUNS = ELEMENTWISE_THREADS / DEPTHWISE_VECS;
    // 4 more than the channels, so that the taps of a channel are in different banks.
    HIPVIT_LDS static float weights[DEPTHWISE_TAPS][CHANNELS + 4];
    const WindowGeometry &g = a.windows;
    const u32 taps = g.kernel[0] * g.kernel[1], groups = (g.channels + CHANNELS - 1) / CHANNELS;
    const u32 first = block_index() % groups * CHANNELS;
    for (u32 i = thread_index(); i < taps * CHANNELS; i += ELEMENTWISE_THREADS) {
        const u32 channel = i / taps, tap = i - channel * taps;
        const bool exists = first + channel < g.channels;
        weights[tap][channel] = exists ? to_float(((const T *)a.weight)[u64(first + channel) * taps + tap]) : 0.0f;
    }
    barrier();
    const u32 vec = thread_index() % DEPTHWISE_VECS, channel = first + vec * VEC<T>;
    const u32 runs = (g.columns + DEPTHWISE_COLUMNS - 1) / DEPTHWISE_COLUMNS;
    const u64 run = u64(block_index() / groups) * RUNS + thread_index() / DEPTHWISE_VECS;
    const u64 line = divide(run, runs), image = divide(line, g.rows);
    if (image >= g.images || channel >= g.channels) return;
    const u32 row = u32(line - image * g.rows), column = u32(run - line * runs) * DEPTHWISE_COLUMNS;
    const u32 valid = g.channels - channel < VEC<T> ? g.channels - channel : VEC<T>;
    float sum[DEPTHWISE_COLUMNS][VEC<T>];
#pragma unroll
    for (u32 p = 0; p < DEPTHWISE_COLUMNS; ++p)
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) sum[p][i] = 0.0f;
    for (u32 down = 0; down < g.kernel[0]; ++down) {
        const u32 y = window_at(g, 0, row, down);
        if (y == OUTSIDE) continue;
        const T *from = (const T *)a.x + (image * g.height + y) * g.width * g.channels + channel;
        for (u32 across = 0; across < g.kernel[1]; ++across) {
            const float *weight = weights[down * g.kernel[1] + across] + vec * VEC<T>;
#pragma unroll
            for (u32 p = 0; p < DEPTHWISE_COLUMNS; ++p) {
                const u32 x = window_at(g, 1, column + p, across);
                if (x == OUTSIDE) continue;
                float value[VEC<T>];
                const T *at = from + u64(x) * g.channels;
                load_vec(at, valid, aligned(at, 16), value);
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) sum[p][i] = multiply_add(value[i], weight[i], sum[p][i]);
            }
        }
    }
#pragma unroll
    for (u32 p = 0; p < DEPTHWISE_COLUMNS; ++p) {
        if (column + p >= g.columns) return;
        const u64 at = (line * g.columns + column + p) * g.channels + channel;
        finish<T>(a.bias, a.residual, a.out, at, channel, valid, a.activation, sum[p]);
    }
}

// Elements of T in a word of 32 bits.
template <class T> constexpr u32 WORD = 4 / sizeof(T);

// The elements of a word of adjacent channels.
HIPVIT_DEVICE void unpack(u32 word, const f32 *, float (&x)[1]) { x[0] = float_of(word); }
HIPVIT_DEVICE void unpack(u32 word, const bf16 *, float (&x)[2]) {
    x[0] = float_of(word << 16);
    x[1] = float_of(word & 0xffff0000);
}
HIPVIT_DEVICE void unpack(u32 word, const f16 *, float (&x)[2]) {
    x[0] = to_float(f16{u16(word)});
    x[1] = to_float(f16{u16(word >> 16)});
}
HIPVIT_DEVICE u32 pack(const f32 *, const float (&x)[1]) { return bits_of(x[0]); }
template <class T> HIPVIT_DEVICE u32 pack(const T *, const float (&x)[2]) {
    return from_float<T>(x[0]).bits | u32(from_float<T>(x[1]).bits) << 16;
}
// Loads words of a row, `distance` bytes apart: word j if bit j of `exist` is 1, otherwise 0.
template <u32 N> HIPVIT_DEVICE void load_words(const void *from, u32 distance, u32 exist, u32 (&word)[N]) {
#if defined(__CUDA_ARCH__)
    // Without the asm NVRTC computes each address by five instructions.
    u64 address = (u64)from;
    asm("" : "+l"(address));
#pragma unroll
    for (u32 j = 0; j < N; ++j)
        asm("{\n\t"
            ".reg .pred exists;\n\t"
            ".reg .u64 at;\n\t"
            "setp.ne.u32 exists, %3, 0;\n\t"
            "mad.wide.u32 at, %2, %4, %1;\n\t"
            "mov.u32 %0, 0;\n\t"
            "@exists ld.global.nc.u32 %0, [at];\n\t"
            "}"
            : "=r"(word[j])
            : "l"(address), "r"(distance), "r"(exist & 1u << j), "r"(j));
#else
#pragma unroll
    for (u32 j = 0; j < N; ++j)
        word[j] = exist >> j & 1 ? *reinterpret_cast<const u32 *>((const char *)from + j * distance) : 0;
#endif
}
template <class T> HIPVIT_DEVICE void load_word(const T *from, float (&x)[WORD<T>]) {
    unpack(*reinterpret_cast<const u32 *>(from), from, x);
}

// A tile of COLUMNS adjacent pixels of ROWS adjacent rows, for a word of channels: square kernels of SIZE, STRIDE apart.
template <class T, u32 SIZE, u32 STRIDE, u32 COLUMNS> struct DepthwiseTile {
    static constexpr u32 ROWS = STRIDE == 1 ? DEPTHWISE_ROWS : 1;
    // Rows and columns of the image that the windows of a tile cover.
    static constexpr u32 HEIGHT = (ROWS - 1) * STRIDE + SIZE, WIDTH = (COLUMNS - 1) * STRIDE + SIZE;
    static constexpr u32 TAPS = SIZE * SIZE, CHANNELS = WORD<T> * DEPTHWISE_TILE_WORDS;
    // As in memory: TAPS of each channel, which is odd, so that adjacent channels are in different banks.
    using Weights = float[CHANNELS * TAPS];
    using Row = u32[WIDTH];
    using RowWeights = float[SIZE][WORD<T>];

    const WindowGeometry &g;
    const T *images;
    // The element of the first pixel that the windows cover, which is negative in the padding, and the elements of a row.
    u32 start, pitch;
    // The first row that the windows cover, and a bit for each column of theirs that is in the image.
    u32 y, inside = 0;
    float sum[ROWS][COLUMNS][WORD<T>];

    HIPVIT_DEVICE DepthwiseTile(const WindowGeometry &g, const void *images, u32 image, u32 row, u32 column, u32 channel)
        : g(g), images((const T *)images), pitch(g.width * g.channels), y(row * STRIDE - g.before[0]) {
        const u32 x = column * STRIDE - g.before[1];
        start = (image * g.height + y) * pitch + x * g.channels + channel;
#pragma unroll
        for (u32 j = 0; j < WIDTH; ++j) inside |= x + j < g.width ? 1u << j : 0;
    }

    HIPVIT_DEVICE bool has_row(u32 index) const { return index < HEIGHT && y + index < g.height; }

    // Loads a row of the image. What is in the padding becomes 0.
    HIPVIT_DEVICE void load(u32 index, Row &row) const {
        const T *from = images + int(opaque(start + index * pitch));
        load_words(from, g.channels * u32(sizeof(T)), has_row(index) ? inside : 0, row);
    }

    // Loads a row of the kernels.
    static HIPVIT_DEVICE void load_weights(const Weights &weights, u32 index, u32 channel, RowWeights &row) {
        const float *from = weights + channel * TAPS + index * SIZE;
#pragma unroll
        for (u32 k = 0; k < SIZE; ++k)
#pragma unroll
            for (u32 i = 0; i < WORD<T>; ++i) row[k][i] = from[i * TAPS + k];
    }

    // Adds the products of a row of the image with a row of the kernel, `first` to the tile's first row, `second` to its last.
    template <bool FIRST, bool SECOND>
    HIPVIT_DEVICE void multiply(const Row &row, const RowWeights &first, const RowWeights &second) {
#pragma unroll
        for (u32 j = 0; j < WIDTH; ++j) {
            float value[WORD<T>];
            unpack(row[j], (const T *)nullptr, value);
#pragma unroll
            for (u32 k = 0; k < SIZE; ++k) {
                if (j < k || (j - k) % STRIDE || (j - k) / STRIDE >= COLUMNS) continue;
                const u32 p = (j - k) / STRIDE;
#pragma unroll
                for (u32 i = 0; i < WORD<T>; ++i) {
                    if constexpr (FIRST) sum[0][p][i] = multiply_add(value[i], first[k][i], sum[0][p][i]);
                    if constexpr (SECOND)
                        sum[ROWS - 1][p][i] = multiply_add(value[i], second[k][i], sum[ROWS - 1][p][i]);
                }
            }
        }
    }

    // Adds the products of all rows. A pass computes two rows of the image, so that no row of weights moves between registers. A row is
    // loaded while the row before it is multiplied.
    HIPVIT_DEVICE void run(const Weights &weights, u32 channel) {
        Row even, odd;
        RowWeights of_even, of_odd;
        load(0, even);
#pragma unroll 1
        for (u32 index = 0; index < HEIGHT; index += 2) {
            load(index + 1, odd);
            load_weights(weights, index, channel, of_even);
            schedule_fence();
            if (has_row(index)) {
                if (ROWS == 1 || index == 0)
                    multiply<true, false>(even, of_even, of_odd);
                else
                    multiply<true, true>(even, of_even, of_odd);
            }
            schedule_fence();
            load(index + 2, even);
            if (index + 1 < SIZE) load_weights(weights, index + 1, channel, of_odd);
            schedule_fence();
            if (has_row(index + 1)) {
                if (ROWS == 1)
                    multiply<true, false>(odd, of_odd, of_even);
                else if (index + 1 == SIZE)
                    multiply<false, true>(odd, of_odd, of_even);
                else
                    multiply<true, true>(odd, of_odd, of_even);
            }
            schedule_fence();
        }
    }

    // Activates all sums. One copy of the code activates a column, and the columns rotate.
    HIPVIT_DEVICE void activate_sums(u32 activation) {
        if (ActivationCode(activation) == ActivationCode::None) return;
#pragma unroll 1
        for (u32 column = 0; column < COLUMNS; ++column) {
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r) {
                float value[WORD<T>];
#pragma unroll
                for (u32 i = 0; i < WORD<T>; ++i) value[i] = sum[r][0][i];
                activate_as<T>(activation, value);
#pragma unroll
                for (u32 i = 0; i < WORD<T>; ++i) {
#pragma unroll
                    for (u32 p = 0; p + 1 < COLUMNS; ++p) sum[r][p][i] = sum[r][p + 1][i];
                    sum[r][COLUMNS - 1][i] = value[i];
                }
            }
        }
    }
};

template <class T, u32 SIZE, u32 STRIDE, u32 COLUMNS> HIPVIT_DEVICE void depthwise_tiles(const DepthwiseConvArgs &a) {
    using Tile = DepthwiseTile<T, SIZE, STRIDE, COLUMNS>;
    constexpr u32 TILES = DEPTHWISE_TILE_THREADS / DEPTHWISE_TILE_WORDS;
    HIPVIT_LDS static typename Tile::Weights weights;
    const WindowGeometry &g = a.windows;
    const u32 groups = (g.channels + Tile::CHANNELS - 1) / Tile::CHANNELS;
    const u32 first = block_index() % groups * Tile::CHANNELS;
    const u32 exist = (g.channels - first < Tile::CHANNELS ? g.channels - first : Tile::CHANNELS) * Tile::TAPS;
    const T *from = (const T *)a.weight + u64(first) * Tile::TAPS;
    for (u32 i = thread_index() * WORD<T>; i < exist; i += DEPTHWISE_TILE_THREADS * WORD<T>) {
        float weight[WORD<T>];
        load_word(from + i, weight);
#pragma unroll
        for (u32 k = 0; k < WORD<T>; ++k) weights[i + k] = weight[k];
    }
    barrier();
    const u32 own = thread_index() % DEPTHWISE_TILE_WORDS * WORD<T>, channel = first + own;
    const u32 across = (g.columns + COLUMNS - 1) / COLUMNS, down = (g.rows + Tile::ROWS - 1) / Tile::ROWS;
    const u64 index = u64(block_index() / groups) * TILES + thread_index() / DEPTHWISE_TILE_WORDS;
    const u64 line = divide(index, across), image = divide(line, down);
    if (image >= g.images || channel >= g.channels) return;
    const u32 row = u32(line - image * down) * Tile::ROWS, column = u32(index - line * across) * COLUMNS;

    Tile tile(g, a.x, u32(image), row, column, channel);
    float bias[WORD<T>] = {};
    if (a.bias) load_word((const T *)a.bias + channel, bias);
#pragma unroll
    for (u32 r = 0; r < Tile::ROWS; ++r)
#pragma unroll
        for (u32 p = 0; p < COLUMNS; ++p)
#pragma unroll
            for (u32 i = 0; i < WORD<T>; ++i) tile.sum[r][p][i] = bias[i];
    tile.run(weights, own);
    tile.activate_sums(a.activation);
#pragma unroll
    for (u32 r = 0; r < Tile::ROWS; ++r) {
        if (row + r >= g.rows) return;
        const u64 start = ((image * g.rows + row + r) * g.columns + column) * g.channels + channel;
#pragma unroll
        for (u32 p = 0; p < COLUMNS; ++p) {
            if (column + p >= g.columns) break;
            const u64 at = start + u64(p) * g.channels;
            if (a.residual) {
                float add[WORD<T>];
                load_word((const T *)a.residual + at, add);
#pragma unroll
                for (u32 i = 0; i < WORD<T>; ++i) tile.sum[r][p][i] += add[i];
            }
            *reinterpret_cast<u32 *>((T *)a.out + at) = pack((const T *)nullptr, tile.sum[r][p]);
        }
    }
}

#define GENERAL(name, T)                                                                                               \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(DepthwiseConvArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(GENERAL, depthwise_conv)

// At least 4 blocks per multiprocessor, so that a block's weights arrive while others compute.
#define TILES(form, T, size, stride, columns)                                                                          \
    HIPVIT_KERNEL_BLOCKS(DEPTHWISE_TILE_THREADS, 4)                                                                    \
    depthwise_conv_##size##_##form##_##T(DepthwiseConvArgs a) { depthwise_tiles<T, size, stride, columns>(a); }
#define SIZES(form, T, stride, columns)                                                                                \
    TILES(form, T, 3, stride, columns)                                                                                 \
    TILES(form, T, 5, stride, columns)                                                                                 \
    TILES(form, T, 7, stride, columns)
#define WIDE(form, T) SIZES(form, T, 1, DEPTHWISE_WIDE_COLUMNS)
#define NARROW(form, T) SIZES(form, T, 1, DEPTHWISE_NARROW_COLUMNS)
#define STRIDED(form, T) SIZES(form, T, 2, DEPTHWISE_NARROW_COLUMNS)
HIPVIT_FOR_DTYPES(WIDE, wide)
HIPVIT_FOR_DTYPES(NARROW, narrow)
HIPVIT_FOR_DTYPES(STRIDED, strided)
