// augment: the random operations of training images on u8 RGB, with the bytes of Pillow, torchvision and timm.
//
// Crops and resampling are those of resize.hip. Operations that map bytes only change a table of each channel. It is applied when an
// operation reads pixels, so that a series of them reads each pixel once. Arithmetic is the host's: products and sums are rounded
// separately, in f32 or f64.
//
// Shapes: augment_u8: pixels → out, both [images, height, width, 3]; pixels are overwritten. augment_mix_u8: in place.
// Alignment: any.
// Accumulator: u64 for the mean of the luma, u32 for histograms.
// Geometry: augment_u8: a block of AUGMENT_THREADS per image, since means and histograms are those of images. augment_mix_u8: a thread per
//   byte of a pair of images.
// Bounds: operations are read below `count`, whatever the starts contain. Sources of pixels are limited to the image.
#include "augment.h"
#include "device.hpp"

using namespace hipvit;

// Sums and products of this file are not fused. `product` alone is not enough: clang moves the sign of a factor into the sum, and fuses that.
#if HIPVIT_AMD
#pragma clang fp contract(off)
HIPVIT_DEVICE double product(double a, double b) { return a * b; }
#else
HIPVIT_DEVICE double product(double a, double b) { return __dmul_rn(a, b); }
#endif

// Truncates, and clips to a byte.
template <class T> HIPVIT_DEVICE u8 to_byte(T x) { return x > T(0) ? x < T(255) ? u8(int(x)) : u8(255) : u8(0); }

HIPVIT_DEVICE int floor_of(double x) {
    const int truncated = int(x);
    return double(truncated) > x ? truncated - 1 : truncated;
}

HIPVIT_DEVICE u8 blend(float from, float to, float factor) { return to_byte(from + product(factor, to - from)); }

HIPVIT_DEVICE u8 luma(const u8 (&p)[3]) { return u8((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16); }

// Adds 1 to a counter in LDS.
HIPVIT_DEVICE void count_one(u32 *counter) {
#if HIPVIT_AMD
    __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
#else
    atomicAdd(counter, 1u);
#endif
}

struct Operation {
    const u64 *words;

    HIPVIT_DEVICE u32 kind() const { return u32(words[0]); }
    HIPVIT_DEVICE u8 color(u32 c) const { return u8(words[0] >> (32 + 8 * c)); }
    HIPVIT_DEVICE double operator[](u32 i) const {
        union {
            u64 bits;
            double value;
        } number;
        number.bits = words[1 + i];
        return number.value;
    }
};

// An image, and the table that its bytes pass through.
struct Source {
    u8 *pixels;
    const u8 *table;
    int height, width;

    HIPVIT_DEVICE u8 byte(u64 pixel, u32 c) const { return table[256 * c + pixels[3 * pixel + c]]; }
    HIPVIT_DEVICE void get(u64 pixel, u8 (&out)[3]) const {
        for (u32 c = 0; c < 3; ++c) out[c] = byte(pixel, c);
    }
    HIPVIT_DEVICE bool contains(int x, int y) const { return x >= 0 && x < width && y >= 0 && y < height; }
    // The byte at a position that is limited to the image.
    HIPVIT_DEVICE double clamped(int x, int y, u32 c) const {
        x = x < 0 ? 0 : x < width ? x : width - 1;
        y = y < 0 ? 0 : y < height ? y : height - 1;
        return byte(u64(y) * width + x, c);
    }
};

HIPVIT_DEVICE double linear(double a, double b, double d) { return a + product(b - a, d); }

// Pillow's order of operations.
HIPVIT_DEVICE double cubic(const double (&v)[4], double d) {
    const double p2 = -v[0] + v[2], p3 = 2.0 * (v[0] - v[1]) + v[2] - v[3], p4 = -v[0] + v[1] - v[2] + v[3];
    return v[1] + product(d, p2 + product(d, p3 + product(d, p4)));
}

// The pixel of an affine transformation at column x and row y, or the colour.
HIPVIT_DEVICE void transformed(const Source &in, const Operation &op, int column, int row, u8 (&out)[3]) {
    for (u32 c = 0; c < 3; ++c) out[c] = op.color(c);
    if (op.kind() == AUGMENT_NEAREST) {
        const u32 x = u32(int(op[4])) + u32(int(op[0])) * u32(column) + u32(int(op[1])) * u32(row);
        const u32 y = u32(int(op[5])) + u32(int(op[2])) * u32(column) + u32(int(op[3])) * u32(row);
        const int from_x = int(x) >> 16, from_y = int(y) >> 16;
        if (in.contains(from_x, from_y)) in.get(u64(from_y) * in.width + from_x, out);
        return;
    }
    const double x = column + 0.5, y = row + 0.5;
    double from_x = product(op[0], x) + product(op[1], y) + op[2];
    double from_y = product(op[3], x) + product(op[4], y) + op[5];
    if (!(from_x >= 0.0 && from_x < in.width && from_y >= 0.0 && from_y < in.height)) return;
    from_x -= 0.5;
    from_y -= 0.5;
    const int left = floor_of(from_x), top = floor_of(from_y);
    const double dx = from_x - left, dy = from_y - top;
    for (u32 c = 0; c < 3; ++c) {
        if (op.kind() == AUGMENT_BILINEAR) {
            const double upper = linear(in.clamped(left, top, c), in.clamped(left + 1, top, c), dx);
            const double lower = linear(in.clamped(left, top + 1, c), in.clamped(left + 1, top + 1, c), dx);
            out[c] = to_byte(linear(upper, lower, dy));
        } else {
            double rows[4];
            for (int r = 0; r < 4; ++r) {
                double columns[4];
                for (int i = 0; i < 4; ++i) columns[i] = in.clamped(left - 1 + i, top - 1 + r, c);
                rows[r] = cubic(columns, dx);
            }
            out[c] = to_byte(cubic(rows, dy));
        }
    }
}

HIPVIT_DEVICE void moved(const Source &in, const Operation &op, int column, int row, u8 (&out)[3]) {
    const int x = int(op[0]) * column + int(op[1]), y = int(op[2]) * row + int(op[3]);
    for (u32 c = 0; c < 3; ++c) out[c] = op.color(c);
    if (in.contains(x, y)) in.get(u64(y) * in.width + x, out);
}

// Three neighbours of a row, in the order of Pillow's sums.
HIPVIT_DEVICE float smooth_row(const Source &in, u64 pixel, u32 c, float centre) {
    constexpr float SIDE = 1.0f / 13.0f;
    return product(in.byte(pixel - 1, c), SIDE) + product(in.byte(pixel, c), centre) + product(in.byte(pixel + 1, c), SIDE);
}

HIPVIT_DEVICE void sharpened(const Source &in, float factor, int x, int y, u8 (&out)[3]) {
    const u64 pixel = u64(y) * in.width + x;
    in.get(pixel, out);
    if (x == 0 || y == 0 || x == in.width - 1 || y == in.height - 1) return;
    for (u32 c = 0; c < 3; ++c) {
        const float below = smooth_row(in, pixel + in.width, c, 1.0f / 13.0f), here = smooth_row(in, pixel, c, 5.0f / 13.0f);
        const float above = smooth_row(in, pixel - in.width, c, 1.0f / 13.0f);
        out[c] = blend(to_byte(0.5f + below + here + above), out[c], factor);
    }
}

HIPVIT_DEVICE u8 scaled(double value, double factor) {
    const double x = product(value, factor);
    const int whole = floor_of(x);
    return u8(x - whole >= 0.5 ? whole + 1 : whole);
}

// Pillow's conversions to HSV and back, with their mixture of f32 and f64. f32 quotients are correctly rounded.
HIPVIT_DEVICE void rotate_hue(u8 (&p)[3], u32 shift) {
    const u32 high = p[0] > p[1] ? p[0] > p[2] ? p[0] : p[2] : p[1] > p[2] ? p[1] : p[2];
    const u32 low = p[0] < p[1] ? p[0] < p[2] ? p[0] : p[2] : p[1] < p[2] ? p[1] : p[2];
    u32 hue = 0, saturation = 0;
    if (high != low) {
        const float range = float(high - low);
        const float r = float(high - p[0]) / range, g = float(high - p[1]) / range, b = float(high - p[2]) / range;
        const float sector = p[0] == high   ? b - g
                             : p[1] == high ? float(2.0 + double(r) - double(b))
                                            : float(4.0 + double(g) - double(r));
        const double turns = double(sector) / 6.0 + 1.0;
        hue = to_byte(product(double(float(turns >= 1.0 ? turns - 1.0 : turns)), 255.0));
        saturation = to_byte(product(double(range / float(high)), 255.0));
    }
    hue = (hue + shift) & 255;
    if (saturation == 0) {
        p[0] = p[1] = p[2] = u8(high);
        return;
    }
    const double sectors = product(double(hue), 6.0) / 255.0;
    const int sector = floor_of(sectors);
    const float rest = float(sectors - sector), depth = float(double(saturation) / 255.0);
    const u8 v = u8(high), low_byte = scaled(high, 1.0 - double(depth));
    const u8 q = scaled(high, 1.0 - double(product(depth, rest)));
    const u8 t = scaled(high, 1.0 - product(double(depth), 1.0 - double(rest)));
    const u32 part = u32(sector) % 6;
    p[0] = part == 0 || part == 5 ? v : part == 1 ? q : part == 4 ? t : low_byte;
    p[1] = part == 1 || part == 2 ? v : part == 0 ? t : part == 3 ? q : low_byte;
    p[2] = part == 3 || part == 4 ? v : part == 2 ? t : part == 5 ? q : low_byte;
}

// What an operation that maps bytes makes of one.
HIPVIT_DEVICE u8 mapped(u8 byte, const Operation &op, u8 mean) {
    switch (op.kind()) {
    case AUGMENT_BRIGHTNESS: return blend(0.0f, byte, float(op[0]));
    case AUGMENT_CONTRAST: return blend(mean, byte, float(op[0]));
    case AUGMENT_POSTERIZE: return u8(byte & u32(op[0]));
    case AUGMENT_SOLARIZE: return double(byte) < op[0] ? byte : u8(255 - byte);
    case AUGMENT_SOLARIZE_ADD: return byte < 128 ? to_byte(float(byte) + float(op[0])) : byte;
    case AUGMENT_INVERT: return u8(255 - byte);
    default: return byte;
    }
}

// Flattens the histogram `counts` of `pixels` pixels, as Pillow does.
HIPVIT_DEVICE u8 equalized(u8 byte, const u32 *counts, u32 pixels) {
    u32 last = 255;
    while (last > 0 && counts[last] == 0) --last;
    const u32 step = (pixels - counts[last]) / 255;
    if (step == 0) return byte;
    u32 sum = step / 2;
    for (u32 i = 0; i < byte; ++i) sum += counts[i];
    const u32 value = sum / step;
    return u8(value < 255 ? value : 255);
}

HIPVIT_DEVICE u8 stretched(u8 byte, const u32 *counts) {
    u32 low = 0, high = 255;
    while (low < 255 && counts[low] == 0) ++low;
    while (high > 0 && counts[high] == 0) --high;
    if (high <= low) return byte;
    const double scale = 255.0 / double(high - low);
    return to_byte(product(double(byte), scale) + product(-double(low), scale));
}

HIPVIT_KERNEL(AUGMENT_THREADS) augment_u8(AugmentArgs a) {
    // Result of the operations that map bytes, of each channel.
    HIPVIT_LDS u8 table[3 * 256];
    HIPVIT_LDS u32 counts[3 * 256];
    HIPVIT_LDS u64 sums[AUGMENT_THREADS];
    const u32 thread = thread_index(), image = block_index();
    const u32 pixels = a.height * a.width;
    u8 *other = a.out + u64(image) * pixels * 3;
    u8 *const result = other;
    Source in = {a.pixels + u64(image) * pixels * 3, table, int(a.height), int(a.width)};
    const u32 end = a.starts[image + 1] < a.count ? a.starts[image + 1] : a.count;
    for (u32 i = thread; i < 3 * 256; i += AUGMENT_THREADS) table[i] = u8(i);
    barrier();
    for (u32 index = a.starts[image]; index < end; ++index) {
        const Operation op = {a.operations + u64(index) * AUGMENT_OPERATION_WORDS};
        const u32 kind = op.kind();
        if (kind <= AUGMENT_SHARPNESS || kind == AUGMENT_SATURATION || kind == AUGMENT_HUE) {
            // Each thread replaces its own pixels, unless their neighbours are read too.
            u8 *const to = kind <= AUGMENT_SHARPNESS ? other : in.pixels;
            for (u32 pixel = thread; pixel < pixels; pixel += AUGMENT_THREADS) {
                const int y = int(pixel / a.width), x = int(pixel - u32(y) * a.width);
                u8 out[3];
                if (kind == AUGMENT_MOVE) {
                    moved(in, op, x, y, out);
                } else if (kind == AUGMENT_SHARPNESS) {
                    sharpened(in, float(op[0]), x, y, out);
                } else if (kind == AUGMENT_SATURATION) {
                    in.get(pixel, out);
                    const u8 grey = luma(out);
                    for (u32 c = 0; c < 3; ++c) out[c] = blend(grey, out[c], float(op[0]));
                } else if (kind == AUGMENT_HUE) {
                    in.get(pixel, out);
                    rotate_hue(out, u32(op[0]));
                } else {
                    transformed(in, op, x, y, out);
                }
                for (u32 c = 0; c < 3; ++c) to[3 * u64(pixel) + c] = out[c];
            }
            barrier();
            for (u32 i = thread; i < 3 * 256; i += AUGMENT_THREADS) table[i] = u8(i);
            if (to == other) {
                other = in.pixels;
                in.pixels = to;
            }
            barrier();
            continue;
        }
        u8 mean = 0;
        if (kind == AUGMENT_CONTRAST) {
            u64 sum = 0;
            for (u32 pixel = thread; pixel < pixels; pixel += AUGMENT_THREADS) {
                u8 bytes[3];
                in.get(pixel, bytes);
                sum += luma(bytes);
            }
            sums[thread] = sum;
            for (u32 half = AUGMENT_THREADS / 2; half > 0; half /= 2) {
                barrier();
                if (thread < half) sums[thread] += sums[thread + half];
            }
            barrier();
            mean = to_byte(double(sums[0]) / double(pixels) + 0.5);
        } else if (kind >= AUGMENT_EQUALIZE) {
            for (u32 i = thread; i < 3 * 256; i += AUGMENT_THREADS) counts[i] = 0;
            barrier();
            for (u32 pixel = thread; pixel < pixels; pixel += AUGMENT_THREADS)
                for (u32 c = 0; c < 3; ++c) count_one(&counts[256 * c + in.byte(pixel, c)]);
            barrier();
        }
        for (u32 i = thread; i < 3 * 256; i += AUGMENT_THREADS) {
            const u32 *const of_channel = counts + i / 256 * 256;
            table[i] = kind == AUGMENT_EQUALIZE       ? equalized(table[i], of_channel, pixels)
                       : kind == AUGMENT_AUTOCONTRAST ? stretched(table[i], of_channel)
                                                      : mapped(table[i], op, mean);
        }
        barrier();
    }
    // In place too, because the table may have changed.
    for (u32 pixel = thread; pixel < pixels; pixel += AUGMENT_THREADS) {
        u8 out[3];
        in.get(pixel, out);
        for (u32 c = 0; c < 3; ++c) result[3 * u64(pixel) + c] = out[c];
    }
}

HIPVIT_KERNEL(AUGMENT_THREADS) augment_mix_u8(AugmentMixArgs a) {
    const u64 image_bytes = u64(a.height) * a.width * 3;
    const u64 index = u64(block_index()) * AUGMENT_THREADS + thread_index();
    const u64 pair = index / image_bytes;
    if (pair >= a.images / 2) return;
    const u64 at = index - pair * image_bytes;
    const u32 row = u32(at / (3 * a.width)), column = u32(at % (3 * a.width)) / 3;
    const u64 places[2] = {pair, a.images - 1 - pair};
    u8 bytes[2];
    for (u32 i = 0; i < 2; ++i) bytes[i] = a.pixels[places[i] * image_bytes + at];
    for (u32 i = 0; i < 2; ++i) {
        const u32 *const mixture = a.mixtures + places[i] * AUGMENT_MIXTURE_WORDS;
        const u8 own = bytes[i], partner = bytes[1 - i];
        u8 out = own;
        if (mixture[0] == AUGMENT_BLEND) {
            const float mixed = product(own, float_of(mixture[1])) + product(partner, float_of(mixture[2]));
            out = to_byte(nearest(mixed));
        } else if (mixture[0] == AUGMENT_CUT) {
            const bool inside = row >= mixture[3] && row < mixture[4] && column >= mixture[5] && column < mixture[6];
            if (inside) out = partner;
        }
        a.pixels[places[i] * image_bytes + at] = out;
    }
}
