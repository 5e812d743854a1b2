// resize: one pass of Pillow's resampling of 8-bit RGB, bit for bit.
//
// Pillow resamples one axis, rounds to u8, then resamples the other: two launches, with the tables and in the order of the host's resize.
// A crop needs only the tables of its window. The sum of weight · byte is in i32 with RESIZE_FRACTIONAL_BITS and wraps; it starts at one
// half, is shifted right and clamped to u8.
//
// Shapes: resize_horizontal_u8: [rows, inputs, 3] → [rows, outputs, 3]. resize_vertical_u8: [inputs, row bytes] →
//   [outputs, columns]. resize_nearest_u8: a lookup of row and column. All row-major, input rows input_row bytes apart.
// Alignment: any; the vertical pass loads and stores 4 bytes at once where the addresses allow it.
// Accumulator: i32.
// Geometry: blocks of RESIZE_THREADS, image_blocks of them for each image, so that a batch takes few launches: each launch waits for its
//   turn on a GPU that computes other batches. A thread computes a pixel, in the vertical pass 4 bytes of a row.
#include "resize.h"
#include "vec128.hpp"

using namespace hipvit;

// Unsigned addition may wrap; the shift is arithmetic.
HIPVIT_DEVICE u8 clamp_u8(u32 sum) {
    int value = int(sum) >> RESIZE_FRACTIONAL_BITS;
    return u8(value < 0 ? 0 : value > 255 ? 255 : value);
}

// The thread's index within its block's image.
HIPVIT_DEVICE u64 index_in_image(u32 image_blocks) {
    return u64(block_index() % image_blocks) * RESIZE_THREADS + thread_index();
}

HIPVIT_KERNEL(RESIZE_THREADS) resize_horizontal_u8(ResizeArgs args) {
    const ResizeImage &a = args.images[block_index() / args.image_blocks];
    const u64 index = index_in_image(args.image_blocks);
    if (index >= u64(a.rows) * a.outputs) return;
    const u64 row = divide(index, a.outputs);
    const u32 at = u32(index - row * a.outputs);
    const u8 *from = a.input + row * a.input_row + u64(a.starts[at]) * 3;
    const int *weights = a.weights + u64(at) * a.taps;
    u32 sum[3] = {1u << (RESIZE_FRACTIONAL_BITS - 1), 1u << (RESIZE_FRACTIONAL_BITS - 1), 1u << (RESIZE_FRACTIONAL_BITS - 1)};
    for (u32 tap = 0; tap < a.counts[at]; ++tap)
        for (int c = 0; c < 3; ++c) sum[c] += u32(weights[tap]) * from[tap * 3 + c];
    for (int c = 0; c < 3; ++c) a.output[index * 3 + c] = clamp_u8(sum[c]);
}

HIPVIT_KERNEL(RESIZE_THREADS) resize_vertical_u8(ResizeArgs args) {
    constexpr u32 BYTES = RESIZE_VERTICAL_BYTES; // a word
    const ResizeImage &a = args.images[block_index() / args.image_blocks];
    const u32 words = (a.columns + BYTES - 1) / BYTES;
    const u64 index = index_in_image(args.image_blocks);
    if (index >= u64(a.outputs) * words) return;
    const u32 at = u32(index / words), column = u32(index % words) * BYTES;
    const u32 valid = a.columns - column < BYTES ? a.columns - column : BYTES;
    const u8 *from = a.input + u64(a.starts[at]) * a.input_row + column;
    const int *weights = a.weights + u64(at) * a.taps;
    const bool vector = valid == BYTES && aligned(from, BYTES) && a.input_row % BYTES == 0;
    u32 sum[BYTES];
    for (u32 i = 0; i < BYTES; ++i) sum[i] = 1u << (RESIZE_FRACTIONAL_BITS - 1);
    for (u32 tap = 0; tap < a.counts[at]; ++tap, from += a.input_row) {
        u32 weight = u32(weights[tap]), word = 0;
        if (vector) {
            word = *reinterpret_cast<const u32 *>(from);
        } else {
            for (u32 i = 0; i < BYTES; ++i)
                if (i < valid) word |= u32(from[i]) << (8 * i);
        }
        for (u32 i = 0; i < BYTES; ++i) sum[i] += weight * (word >> (8 * i) & 255);
    }
    u8 *to = a.output + u64(at) * a.columns + column;
    if (valid == BYTES && aligned(to, BYTES)) {
        *reinterpret_cast<u32 *>(to) =
            clamp_u8(sum[0]) | u32(clamp_u8(sum[1])) << 8 | u32(clamp_u8(sum[2])) << 16 | u32(clamp_u8(sum[3])) << 24;
    } else {
        for (u32 i = 0; i < BYTES; ++i)
            if (i < valid) to[i] = clamp_u8(sum[i]);
    }
}

HIPVIT_KERNEL(RESIZE_THREADS) resize_nearest_u8(ResizeNearestArgs args) {
    const ResizeNearestImage &a = args.images[block_index() / args.image_blocks];
    const u64 index = index_in_image(args.image_blocks);
    if (index >= u64(a.width) * a.height) return;
    const u8 *from = a.input + a.rows[index / a.width] * a.input_row + u64(a.columns[index % a.width]) * 3;
    for (int c = 0; c < 3; ++c) a.output[index * 3 + c] = from[c];
}
