// resize: one pass of Pillow's resampling, bit for bit, for RGB of 8 bits.
//
// Pillow resamples one axis, rounds to u8, then the other: two launches, in the order that src/image/resample decides,
// with its tables; a window of the result (a crop) needs only the window's tables. The sum of weight × byte is in i32
// with 22 fractional bits and wraps, starts at one half, is shifted down and clipped.
//
// resize_horizontal_u8: u8 [rows, inputs, 3] → [rows, outputs, 3]; a thread makes a pixel.
// resize_vertical_u8: u8 [inputs, row bytes] → [outputs, columns]; a thread makes four bytes of a row.
// resize_nearest_u8: a lookup of column and row; a thread makes a pixel.
// Alignment: any; the vertical pass loads and stores four bytes at once where the addresses allow it.
// Geometry: blocks of 256.
#include "resize.h"
#include "pack.hpp"

using namespace hipvit;

// Unsigned, since it may wrap; the shift is that of a signed number.
HIPVIT_DEVICE u8 clip(u32 sum) {
    int value = int(sum) >> RESIZE_FRACTIONAL_BITS;
    return u8(value < 0 ? 0 : value > 255 ? 255 : value);
}

HIPVIT_KERNEL(RESIZE_THREADS) resize_horizontal_u8(ResizeArgs a) {
    const u64 index = u64(block_index()) * RESIZE_THREADS + thread_index();
    if (index >= u64(a.rows) * a.outputs) return;
    const u64 row = index / a.outputs;
    const u32 at = u32(index % a.outputs);
    const u8 *from = a.input + row * a.input_row + u64(a.starts[at]) * 3;
    const int *weights = a.weights + u64(at) * a.taps;
    u32 sum[3] = {1u << (RESIZE_FRACTIONAL_BITS - 1), 1u << (RESIZE_FRACTIONAL_BITS - 1), 1u << (RESIZE_FRACTIONAL_BITS - 1)};
    for (u32 tap = 0; tap < a.counts[at]; ++tap)
        for (int c = 0; c < 3; ++c) sum[c] += u32(weights[tap]) * from[tap * 3 + c];
    for (int c = 0; c < 3; ++c) a.output[index * 3 + c] = clip(sum[c]);
}

HIPVIT_KERNEL(RESIZE_THREADS) resize_vertical_u8(ResizeArgs a) {
    const u32 quads = (a.columns + 3) / 4;
    const u64 index = u64(block_index()) * RESIZE_THREADS + thread_index();
    if (index >= u64(a.outputs) * quads) return;
    const u32 at = u32(index / quads), column = u32(index % quads) * 4;
    const u32 valid = a.columns - column < 4 ? a.columns - column : 4;
    const u8 *from = a.input + u64(a.starts[at]) * a.input_row + column;
    const int *weights = a.weights + u64(at) * a.taps;
    const bool vector = valid == 4 && aligned(from, 4) && a.input_row % 4 == 0;
    u32 sum[4];
    for (int i = 0; i < 4; ++i) sum[i] = 1u << (RESIZE_FRACTIONAL_BITS - 1);
    for (u32 tap = 0; tap < a.counts[at]; ++tap, from += a.input_row) {
        u32 weight = u32(weights[tap]), word = 0;
        if (vector) {
            word = *reinterpret_cast<const u32 *>(from);
        } else {
            for (u32 i = 0; i < 4; ++i)
                if (i < valid) word |= u32(from[i]) << (8 * i);
        }
        for (int i = 0; i < 4; ++i) sum[i] += weight * (word >> (8 * i) & 255);
    }
    u8 *to = a.output + u64(at) * a.columns + column;
    if (valid == 4 && aligned(to, 4)) {
        *reinterpret_cast<u32 *>(to) =
            clip(sum[0]) | u32(clip(sum[1])) << 8 | u32(clip(sum[2])) << 16 | u32(clip(sum[3])) << 24;
    } else {
        for (u32 i = 0; i < 4; ++i)
            if (i < valid) to[i] = clip(sum[i]);
    }
}

HIPVIT_KERNEL(RESIZE_THREADS) resize_nearest_u8(ResizeNearestArgs a) {
    const u64 index = u64(block_index()) * RESIZE_THREADS + thread_index();
    if (index >= u64(a.width) * a.height) return;
    const u8 *from = a.input + a.rows[index / a.width] * a.input_row + u64(a.columns[index % a.width]) * 3;
    for (int c = 0; c < 3; ++c) a.output[index * 3 + c] = from[c];
}
