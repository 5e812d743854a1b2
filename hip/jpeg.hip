// jpeg: the pixels of JPEGs from their quantised DCT coefficients, with the bits of libjpeg-turbo's defaults.
//
// jpeg_samples unpacks and dequantises the coefficients and computes the inverse DCT ("islow"): the factorisation of Loeffler, Ligtenberg
// and Moschytz in fixed point, columns first. As in libjpeg-turbo's SIMD code, sums of two coefficients wrap at 16 bits, and the results of
// the columns saturate at 16 bits. The latter wrap if only the first row has coefficients that are not 0. jpeg_pixels scales the second and third
// component to the size of the first ("fancy" upsampling) and converts the colours.
//
// Shapes: words → samples [blocks, 64] → RGB [height, width, 3], see jpeg.h.
// Alignment: words and pixels at multiples of 4 bytes, samples at multiples of 8.
// Accumulator: i32, which wraps.
// Geometry: blocks of JPEG_THREADS, image_blocks of them for each image. jpeg_samples: 8 threads compute a block, each a column, then a
//   row. jpeg_pixels: a thread computes JPEG_PIXELS pixels in the order of the memory.
// Bounds: positions and indices of entries are limited to the block and to `entries`, whatever the words contain.
#include "jpeg.h"
#include "vec128.hpp"

using namespace hipvit;

using i16 = short;

// Fractional bits of the constants, and those that the results of the columns keep.
constexpr u32 CONST_BITS = 13, PASS1_BITS = 2;
constexpr u32 COLUMN_SHIFT = CONST_BITS - PASS1_BITS, ROW_SHIFT = CONST_BITS + PASS1_BITS + 3;

// Distance of blocks in LDS, in coefficients: 16 bytes more than a block, so that the blocks of a wave are in different banks.
constexpr u32 LDS_BLOCK = 72;

// Multiples of 2^-13: 0.298…, 0.390… and so on, as in libjpeg.
constexpr int F_0_298 = 2446, F_0_390 = 3196, F_0_541 = 4433, F_0_765 = 6270, F_0_899 = 7373, F_1_175 = 9633, F_1_501 = 12299,
              F_1_847 = 15137, F_1_961 = 16069, F_2_053 = 16819, F_2_562 = 20995, F_3_072 = 25172;

// A row or column.
union Line {
    Vec128 whole;
    i16 value[8];
};

HIPVIT_DEVICE int add(int a, int b) { return int(u32(a) + u32(b)); }
HIPVIT_DEVICE int subtract(int a, int b) { return int(u32(a) - u32(b)); }
HIPVIT_DEVICE int products(int a, int f, int b, int g) { return int(u32(a) * u32(f) + u32(b) * u32(g)); }
// A sum and a difference at 16 bits.
HIPVIT_DEVICE int add16(int a, int b) { return i16(u16(u32(a) + u32(b))); }
HIPVIT_DEVICE int subtract16(int a, int b) { return i16(u16(u32(a) - u32(b))); }

template <u32 SHIFT> HIPVIT_DEVICE i16 rounded(int x) {
    const int value = add(x, 1 << (SHIFT - 1)) >> SHIFT;
    return i16(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
}

// One-dimensional transform.
template <u32 SHIFT> HIPVIT_DEVICE void transform(Line &line) {
    int x[8];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) x[i] = line.value[i];
    const int total = int(u32(add16(x[0], x[4])) << CONST_BITS), difference = int(u32(subtract16(x[0], x[4])) << CONST_BITS);
    const int a = products(x[2], F_0_541 + F_0_765, x[6], F_0_541), b = products(x[2], F_0_541, x[6], F_0_541 - F_1_847);
    const int even[4] = {add(total, a), add(difference, b), subtract(difference, b), subtract(total, a)};
    const int first = add16(x[7], x[3]), second = add16(x[5], x[1]);
    const int z3 = products(first, F_1_175 - F_1_961, second, F_1_175), z4 = products(first, F_1_175, second, F_1_175 - F_0_390);
    const int o7 = products(x[7], F_0_298 - F_0_899, x[1], -F_0_899), o1 = products(x[7], -F_0_899, x[1], F_1_501 - F_0_899);
    const int o5 = products(x[5], F_2_053 - F_2_562, x[3], -F_2_562), o3 = products(x[5], -F_2_562, x[3], F_3_072 - F_2_562);
    const int odd[4] = {add(o1, z4), add(o3, z3), add(o5, z4), add(o7, z3)};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        line.value[i] = rounded<SHIFT>(add(even[i], odd[i]));
        line.value[7 - i] = rounded<SHIFT>(subtract(even[i], odd[i]));
    }
}

// A sample of a result of the rows.
HIPVIT_DEVICE u32 sample(i16 value) { return u32((value < -128 ? -128 : value > 127 ? 127 : value) + 128); }

HIPVIT_KERNEL(JPEG_THREADS) jpeg_samples_u8(JpegArgs args) {
    HIPVIT_LDS Vec128 memory[JPEG_BLOCKS * LDS_BLOCK / 8];
    // Not 0 if a coefficient below the first row is not 0.
    HIPVIT_LDS u32 below[JPEG_BLOCKS];
    const JpegImage &a = args.images[block_index() / args.image_blocks];
    const u32 slot = thread_index() / 8, lane = thread_index() % 8;
    const u32 block = block_index() % args.image_blocks * JPEG_BLOCKS + slot;
    const bool exists = block < a.blocks;
    i16 *const tile = reinterpret_cast<i16 *>(memory) + slot * LDS_BLOCK;
    Line line;
    line.whole = Vec128{{0, 0, 0, 0}};
    *reinterpret_cast<Vec128 *>(tile + 8 * lane) = line.whole;
    if (lane == 0) below[slot] = 0;
    barrier();

    u32 component = 0, index = block;
    if (index >= a.luma_blocks) {
        index -= a.luma_blocks;
        component = index < a.chroma_blocks ? 1 : 2;
        if (component == 2) index -= a.chroma_blocks;
    }
    if (exists) {
        const u32 *const steps = a.words + 64 * component;
        const u32 word = a.words[JPEG_STEP_WORDS + block];
        const u16 *const entries = reinterpret_cast<const u16 *>(a.words + JPEG_STEP_WORDS + a.blocks);
        const u32 first = word >> 7, count = word & 127;
        for (u32 i = lane; i < count && first + i < a.entries; i += 8) {
            const u32 entry = entries[first + i];
            u32 position = entry & 63;
            int value = i16(entry) >> 6;
            if (i == 0) {
                position = 0;
                value = i16(entry);
            } else if (position == 0) {
                continue; // upper bits of the next entry
            } else if (i > 1) {
                const u32 before = entries[first + i - 1];
                if ((before & 63) == 0) value += int(u32(i16(before) >> 6) << 10);
            }
            const u32 step = steps[position];
            const u32 at = step >> 16 & 63;
            const i16 product = i16(u16(u32(value) * (step & 0xffff)));
            tile[at] = product;
            if (at >= 8 && product != 0) below[slot] = 1;
        }
    }
    barrier();

#pragma unroll
    for (u32 i = 0; i < 8; ++i) line.value[i] = tile[8 * i + lane];
    if (below[slot]) {
        transform<COLUMN_SHIFT>(line);
    } else {
        const i16 value = i16(u16(u32(line.value[0]) << PASS1_BITS));
#pragma unroll
        for (u32 i = 0; i < 8; ++i) line.value[i] = value;
    }
    // A thread only replaces its own column.
#pragma unroll
    for (u32 i = 0; i < 8; ++i) tile[8 * i + lane] = line.value[i];
    barrier();

    if (!exists) return;
    line.whole = *reinterpret_cast<const Vec128 *>(tile + 8 * lane);
    transform<ROW_SHIFT>(line);
    Vec64 out = {{0, 0}};
#pragma unroll
    for (u32 i = 0; i < 8; ++i) out.word[i / 4] |= sample(line.value[i]) << (8 * (i % 4));
    const u32 wide = component == 0 ? a.luma_wide : a.chroma_wide;
    const u32 y = index / wide, x = index - y * wide;
    const u64 before = component == 0 ? 0 : a.luma_blocks + u64(component - 1) * a.chroma_blocks;
    const u64 row = u64(y * 8 + lane) * wide + x;
    *reinterpret_cast<Vec64 *>(a.samples + before * 64 + row * 8) = out;
}

// The other one of a pair in which `at` is the nearer: the one before for even pixels, or the one after, within the component.
HIPVIT_DEVICE u32 other(u32 at, bool after, u32 end) {
    if (after) return at + 1 < end ? at + 1 : at;
    return at > 0 ? at - 1 : 0;
}

HIPVIT_DEVICE u32 limited(u32 at, u32 end) { return at < end ? at : end - 1; }

// A sample of a component, scaled to the size of the first.
HIPVIT_DEVICE u32 upsampled(const JpegImage &a, const u8 *plane, u32 x, u32 y) {
    const u32 stride = 8 * a.chroma_wide;
    const bool right = x % 2, lower = y % 2;
    if (a.upsampling == JPEG_REPEATED) {
        const u32 row = limited(y / a.repeat_y, a.chroma_height), column = limited(x / a.repeat_x, a.chroma_width);
        return plane[u64(row) * stride + column];
    }
    const bool rows = a.upsampling != JPEG_COLUMNS, columns = a.upsampling != JPEG_ROWS;
    const u32 row = limited(rows ? y / 2 : y, a.chroma_height), column = limited(columns ? x / 2 : x, a.chroma_width);
    const u8 *const near = plane + u64(row) * stride;
    if (!rows) {
        const u32 far = other(column, right, a.chroma_width);
        return (3 * near[column] + near[far] + (right ? 2 : 1)) >> 2;
    }
    const u8 *const next = plane + u64(other(row, lower, a.chroma_height)) * stride;
    const u32 sum = 3 * near[column] + next[column];
    if (!columns) return (sum + (lower ? 2 : 1)) >> 2;
    const u32 far = other(column, right, a.chroma_width);
    return (3 * sum + 3 * near[far] + next[far] + (right ? 7 : 8)) >> 4;
}

HIPVIT_DEVICE u32 clamped(int value) { return u32(value < 0 ? 0 : value > 255 ? 255 : value); }

// The pixel at column x and row y: red in the lowest byte.
HIPVIT_DEVICE u32 pixel(const JpegImage &a, u32 x, u32 y) {
    const u32 luma = a.samples[u64(y) * (8 * a.luma_wide) + x];
    if (a.color == JPEG_GREY) return luma * 0x010101;
    const u8 *const second = a.samples + u64(a.luma_blocks) * 64;
    const u32 u = upsampled(a, second, x, y), v = upsampled(a, second + u64(a.chroma_blocks) * 64, x, y);
    if (a.color == JPEG_RGB) return luma | u << 8 | v << 16;
    // libjpeg's factors, with 16 fractional bits.
    constexpr int HALF = 1 << 15;
    const int cb = int(u) - 128, cr = int(v) - 128;
    const u32 red = clamped(int(luma) + ((91881 * cr + HALF) >> 16));
    const u32 green = clamped(int(luma) + ((-22554 * cb - 46802 * cr + HALF) >> 16));
    const u32 blue = clamped(int(luma) + ((116130 * cb + HALF) >> 16));
    return red | green << 8 | blue << 16;
}

HIPVIT_KERNEL(JPEG_THREADS) jpeg_pixels_u8(JpegArgs args) {
    const JpegImage &a = args.images[block_index() / args.image_blocks];
    const u64 index = (u64(block_index() % args.image_blocks) * JPEG_THREADS + thread_index()) * JPEG_PIXELS;
    const u64 pixels = u64(a.width) * a.height;
    if (index >= pixels) return;
    const u32 valid = pixels - index < JPEG_PIXELS ? u32(pixels - index) : JPEG_PIXELS;
    u32 y = u32(divide(index, a.width)), x = u32(index - u64(y) * a.width);
    u32 value[JPEG_PIXELS] = {};
#pragma unroll
    for (u32 i = 0; i < JPEG_PIXELS; ++i) {
        if (i >= valid) break;
        value[i] = pixel(a, x, y);
        if (++x == a.width) {
            x = 0;
            ++y;
        }
    }
    u8 *const to = a.pixels + index * 3;
    if (valid == JPEG_PIXELS) {
        u32 *const words = reinterpret_cast<u32 *>(to);
        words[0] = value[0] | value[1] << 24;
        words[1] = value[1] >> 8 | value[2] << 16;
        words[2] = value[2] >> 16 | value[3] << 8;
        return;
    }
    for (u32 i = 0; i < 3 * valid; ++i) to[i] = u8(value[i / 3] >> (8 * (i % 3)));
}
