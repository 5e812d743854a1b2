// round_float8: out = v, rounded to E4M3 or E5M2 with one power of two as the scale of all elements, and its transpose. v is x, f(x) or
//   f'(x) · dy for an activation function f, rounded to T as by separate kernels. An element that is not finite becomes NaN. The numbers are
//   those of crates/graph/src/op/round_float8.rs. They are exact in bf16 and f32, or stored as bytes (include/float8.hpp) and their scale.
//   Three launches: round_float8_largest, which returns at once if a history has the scale; round_float8; round_float8_finish. The first two
//   have a variant for each source, and round_float8 one that stores bytes.
//
// Shapes: x, dy T [rows, channels]; statistics, next f32 [ROUND_FLOAT8_RATES + ROUND_FLOAT8_HISTORY]; out [rows, channels] and
//   transposed [channels, padded_rows], T or bytes; sums T [channels] or null.
// Alignment: any, of whole elements; vec128 access where the addresses allow it. For bytes, channels and padded_rows are multiples of 16, and
//   all addresses too.
// Accumulator: f32. Sums of columns: of the rows of a thread, then of the threads of a block, then of all blocks, in a fixed order. Counts of
//   a block are exact.
// Geometry: blocks of ROUND_FLOAT8_THREADS. round_float8: ROUND_FLOAT8_ROWS rows of ROUND_FLOAT8_TILE columns per block, in tiles of 16 KiB
//   that are transposed in LDS, without bank conflicts. A thread reads 16 elements of a row. It writes them, and 16 elements of a column, as
//   16 bytes each. round_float8_finish: ROUND_FLOAT8_SUMMED columns per block, and one block for the statistics.
#include "round_float8.h"
#include "activation.hpp"
#include "float8.hpp"
#include "slope.hpp"
#include "wave.hpp"

using namespace hipvit;

constexpr u32 TILE = ROUND_FLOAT8_TILE, THREADS = ROUND_FLOAT8_THREADS;
// Elements of a row that a thread rounds at once, chunks of a row, and rows of a pass of all threads.
constexpr u32 CHUNK = 16, CHUNKS = TILE / CHUNK, PASS_ROWS = THREADS / CHUNKS;
constexpr u32 WORDS = TILE / 4;
static_assert(CHUNK == ROUND_FLOAT8_ALIGNMENT && THREADS == CHUNKS * WORDS, "a thread has 16 rows of 4 columns of a tile");
static_assert(PASS_ROWS * TILE == TILE * WORDS, "the sums of a pass fill the tile's LDS");

// The bits of a number's biased exponent, and those of its mantissa.
HIPVIT_DEVICE u32 exponent_of(float x) { return bits_of(x) >> 23 & 0xff; }
HIPVIT_DEVICE u32 mantissa_of(float x) { return bits_of(x) & 0x7fffff; }
// The power of two with this biased exponent, 1 to 254.
HIPVIT_DEVICE float power_of_two(u32 exponent) { return float_of(exponent << 23); }

// A format: bits of the mantissa, and biased exponents in f32 of its smallest normal number and of its largest number, which is 1.75 times
// a power of two.
struct Format {
    bool is_e4m3;
    u32 mantissa_bits, smallest, largest;

    HIPVIT_DEVICE explicit Format(u32 code) {
        is_e4m3 = Float8Code(code) == Float8Code::E4M3;
        mantissa_bits = is_e4m3 ? 3 : 2;
        smallest = is_e4m3 ? 127 - 6 : 127 - 14;
        largest = is_e4m3 ? 127 + 8 : 127 + 15;
    }
    // The scale of a tensor with this largest magnitude.
    HIPVIT_DEVICE float scale(float magnitude) const {
        const u32 carry = mantissa_of(magnitude) > 0x600000 ? 1 : 0;
        const int exponent = int(exponent_of(magnitude) + carry + 127) - int(largest);
        return power_of_two(u32(exponent < 1 ? 1 : exponent > 253 ? 253 : exponent));
    }
    HIPVIT_DEVICE float largest_number() const { return 1.75f * power_of_two(largest); }
    // The largest number that is rounded to 0: half of the smallest one, as ties go to even.
    HIPVIT_DEVICE float largest_of_zero() const { return power_of_two(smallest - mantissa_bits - 1); }
    // The next number to x, or the largest one. NaN stays NaN.
    HIPVIT_DEVICE float round(float x) const {
        const float end = largest_number();
        x = x > end ? end : x < -end ? -end : x;
        const u32 own = exponent_of(x), exponent = (own < smallest ? smallest : own) - mantissa_bits;
        return nearest(x * power_of_two(254 - exponent)) * power_of_two(exponent);
    }
    HIPVIT_DEVICE u32 bytes(float a, float b, float c, float d) const {
        return is_e4m3 ? to_float8(a, b, c, d) : to_float8_e5m2(a, b, c, d);
    }
};

HIPVIT_DEVICE bool is_finite(float x) { return absolute(x) < infinity(); }

HIPVIT_DEVICE bool is_delayed(const RoundFloat8Args &a) { return a.flags & 1; }
// Blocks beside each other.
HIPVIT_DEVICE u32 column_blocks(const RoundFloat8Args &a) { return (a.channels - 1) / TILE + 1; }
HIPVIT_DEVICE u32 row_blocks(const RoundFloat8Args &a) { return (a.padded_rows - 1) / ROUND_FLOAT8_ROWS + 1; }
HIPVIT_DEVICE float *figures(const RoundFloat8Args &a) { return a.scratch + ROUND_FLOAT8_LARGEST_BLOCKS; }
HIPVIT_DEVICE float *partial_sums(const RoundFloat8Args &a) {
    return figures(a) + u64(ROUND_FLOAT8_FIGURES) * column_blocks(a) * row_blocks(a);
}

// The largest magnitude of the history, or 0 if the scale does not depend on it.
HIPVIT_DEVICE float largest_of_history(const RoundFloat8Args &a) {
    float largest = 0.0f;
    if (is_delayed(a))
        for (u32 i = 0; i < ROUND_FLOAT8_HISTORY; ++i) largest = larger(largest, a.statistics[ROUND_FLOAT8_RATES + i]);
    return largest;
}

// Loads N elements from `from`, of which the first `valid` exist; the others become 0. WHOLE: all exist, and are aligned to 16 bytes.
template <class T, bool WHOLE, u32 N> HIPVIT_DEVICE void load_elements(const T *from, u32 valid, float (&x)[N]) {
    const bool vector = WHOLE || aligned(from, VEC128_BYTES);
#pragma unroll
    for (u32 part = 0; part < N; part += VEC<T>) {
        float vec[VEC<T>];
        load_vec(from + part, WHOLE ? VEC<T> : valid > part ? valid - part : 0, vector, vec);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) x[part + i] = vec[i];
    }
}

// Loads N numbers of the source, as load_elements does.
template <class T, Float8SourceCode SOURCE, bool WHOLE, u32 N>
HIPVIT_DEVICE void load_source(const RoundFloat8Args &a, u64 at, u32 valid, float (&v)[N]) {
    load_elements<T, WHOLE>((const T *)a.x + at, valid, v);
    if constexpr (SOURCE == Float8SourceCode::Activation) activate_as<T>(a.activation, v);
    if constexpr (SOURCE == Float8SourceCode::Slope) {
        float gradient[N];
        load_elements<T, WHOLE>((const T *)a.dy + at, valid, gradient);
        activation_slopes_as<T>(a.activation, false, v);
#pragma unroll
        for (u32 i = 0; i < N; ++i) v[i] *= gradient[i];
    }
    if constexpr (SOURCE != Float8SourceCode::Value) {
#pragma unroll
        for (u32 i = 0; i < N; ++i) v[i] = WHOLE || i < valid ? to_float(from_float<T>(v[i])) : 0.0f;
    }
}

template <class T, Float8SourceCode SOURCE> HIPVIT_DEVICE void round_float8_largest(const RoundFloat8Args &a) {
    if (largest_of_history(a) > 0.0f) return; // all threads
    HIPVIT_LDS static float scratch[THREADS / WAVE];
    const RowGroup<THREADS> group{true, scratch};
    const u64 elements = u64(a.rows) * a.channels;
    float largest = 0.0f;
#pragma unroll 1
    for (u64 at = (u64(block_index()) * THREADS + thread_index()) * VEC<T>; at < elements;
         at += u64(ROUND_FLOAT8_LARGEST_BLOCKS) * THREADS * VEC<T>) {
        float v[VEC<T>];
        load_source<T, SOURCE, false>(a, at, elements - at < VEC<T> ? u32(elements - at) : VEC<T>, v);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) largest = larger(largest, is_finite(v[i]) ? absolute(v[i]) : 0.0f);
    }
    largest = group.template reduce<Max>(largest);
    if (thread_index() == 0) a.scratch[block_index()] = largest;
}

// Transposes 4 words of 4 bytes.
HIPVIT_DEVICE void transpose_bytes(u32 a, u32 b, u32 c, u32 d, u32 (&out)[4]) {
    constexpr u32 EVEN = 0x00ff00ff, ODD = 0xff00ff00;
    const u32 ab_even = (a & EVEN) | (b & EVEN) << 8, ab_odd = (a & ODD) >> 8 | (b & ODD);
    const u32 cd_even = (c & EVEN) | (d & EVEN) << 8, cd_odd = (c & ODD) >> 8 | (d & ODD);
    out[0] = (ab_even & 0xffff) | cd_even << 16;
    out[1] = (ab_odd & 0xffff) | cd_odd << 16;
    out[2] = ab_even >> 16 | (cd_even & 0xffff0000);
    out[3] = ab_odd >> 16 | (cd_odd & 0xffff0000);
}

// The word of the tile that has the bytes 4 · word, … of a row. 16 rows have the words of a chunk in a place of their own, so that neither rows
// nor columns have bank conflicts.
HIPVIT_DEVICE u32 tile_word(u32 row, u32 word) { return row * WORDS + (word ^ (row / CHUNK % CHUNKS) * 4); }

// Stores the transpose of a tile of bytes, whose first row is `first_row`.
HIPVIT_DEVICE void store_transposed(const RoundFloat8Args &a, const u32 *tile, u32 first_row, u32 first_column) {
    const u32 row = thread_index() % CHUNKS * CHUNK, word = thread_index() / CHUNKS;
    if (first_row + row >= a.padded_rows) return;
    Vec128 columns[4];
#pragma unroll
    for (u32 part = 0; part < 4; ++part) {
        u32 rows[4], bytes[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) rows[i] = tile[tile_word(row + 4 * part + i, word)];
        transpose_bytes(rows[0], rows[1], rows[2], rows[3], bytes);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) columns[i].word[part] = bytes[i];
    }
    const u32 column = first_column + 4 * word;
    if (column >= a.channels) return;
    u8 *to = (u8 *)a.transposed + u64(column) * a.padded_rows + first_row + row;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) *(Vec128 *)(to + u64(i) * a.padded_rows) = columns[i];
}

// STORED: the results are bytes.
template <class T, Float8SourceCode SOURCE, bool STORED> HIPVIT_DEVICE void round_float8(const RoundFloat8Args &a) {
    HIPVIT_LDS static Vec128 vecs[TILE * WORDS / 4];
    u32 *const tile = vecs[0].word;
    HIPVIT_LDS static float scratch[THREADS / WAVE];
    const RowGroup<THREADS> group{true, scratch};
    const Format format(a.format);
    float magnitude = largest_of_history(a);
    if (!(magnitude > 0.0f)) { // all threads
        magnitude = thread_index() < ROUND_FLOAT8_LARGEST_BLOCKS ? a.scratch[thread_index()] : 0.0f;
        magnitude = group.template reduce<Max>(magnitude);
    }
    const float scale = format.scale(magnitude), inverse = power_of_two(254 - exponent_of(scale));
    const float end = format.largest_number(), zero = format.largest_of_zero();
    const u32 beside = column_blocks(a), row_block = block_index() / beside;
    const u32 first_column = (block_index() - row_block * beside) * TILE;
    const u32 chunk = thread_index() % CHUNKS, column = first_column + chunk * CHUNK;
    const u32 valid = column >= a.channels ? 0 : a.channels - column < CHUNK ? a.channels - column : CHUNK;
    float sums[CHUNK] = {}, underflows = 0.0f, overflows = 0.0f, largest = 0.0f;

#pragma unroll 1
    for (u32 of_block = 0; of_block < ROUND_FLOAT8_ROWS; of_block += TILE) {
        const u32 first_row = row_block * ROUND_FLOAT8_ROWS + of_block;
        if (first_row >= a.padded_rows) break; // all threads
#pragma unroll 1
        for (u32 pass = 0; pass < TILE; pass += PASS_ROWS) {
            const u32 of_tile = pass + thread_index() / CHUNKS, row = first_row + of_tile;
            const u32 present = row < a.rows ? valid : 0;
            float v[CHUNK] = {};
            if (present > 0) load_source<T, SOURCE, STORED>(a, u64(row) * a.channels + column, present, v);
#pragma unroll
            for (u32 i = 0; i < CHUNK; ++i) {
                sums[i] += v[i];
                const bool finite = is_finite(v[i]);
                const float scaled = v[i] * inverse, size = absolute(scaled);
                largest = larger(largest, finite ? absolute(v[i]) : 0.0f);
                underflows += v[i] != 0.0f && size <= zero ? 1.0f : 0.0f;
                overflows += finite && size > end ? 1.0f : 0.0f;
                v[i] = finite ? scaled : float_of(0x7fc00000);
            }
            if constexpr (STORED) {
                Vec128 bytes;
#pragma unroll
                for (u32 i = 0; i < 4; ++i) bytes.word[i] = format.bytes(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
                *(Vec128 *)(tile + tile_word(of_tile, 4 * chunk)) = bytes;
                if (present > 0) *(Vec128 *)((u8 *)a.out + u64(row) * a.channels + column) = bytes;
            } else {
#pragma unroll
                for (u32 i = 0; i < CHUNK; ++i) {
                    const T rounded = from_float<T>(product(format.round(v[i]), scale));
                    if (i < present) ((T *)a.out)[u64(row) * a.channels + column + i] = rounded;
                    if (i < valid && row < a.padded_rows)
                        ((T *)a.transposed)[u64(column + i) * a.padded_rows + row] = rounded;
                }
            }
        }
        if constexpr (STORED) {
            barrier();
            store_transposed(a, tile, first_row, first_column);
            barrier(); // the tile is free
        }
    }

    underflows = group.template reduce<Sum>(underflows), overflows = group.template reduce<Sum>(overflows);
    largest = group.template reduce<Max>(largest);
    if (thread_index() == 0) {
        float *to = figures(a) + u64(block_index()) * ROUND_FLOAT8_FIGURES;
        to[0] = underflows, to[1] = overflows, to[2] = largest;
        if (STORED && block_index() == 0) {
            const auto behind = [](u64 elements) { return (elements + CHUNK - 1) / CHUNK * CHUNK; };
            *(float *)((u8 *)a.out + behind(u64(a.rows) * a.channels)) = scale * FLOAT8_UNIT;
            *(float *)((u8 *)a.transposed + behind(u64(a.padded_rows) * a.channels)) = scale * FLOAT8_UNIT;
        }
    }
    if (!a.sums) return; // all threads
    float *const of_threads = (float *)tile;
#pragma unroll
    for (u32 i = 0; i < CHUNK; ++i) of_threads[thread_index() / CHUNKS * TILE + chunk * CHUNK + i] = sums[i];
    barrier();
    const u32 summed = first_column + thread_index();
    if (thread_index() >= TILE || summed >= a.channels) return;
    float sum = 0.0f;
    for (u32 row = 0; row < PASS_ROWS; ++row) sum += of_threads[row * TILE + thread_index()];
    partial_sums(a)[u64(row_block) * a.channels + summed] = sum;
}

template <class T> HIPVIT_DEVICE void finish_sums(const RoundFloat8Args &a, u32 block) {
    constexpr u32 COLUMNS = ROUND_FLOAT8_SUMMED, SLICES = THREADS / COLUMNS;
    HIPVIT_LDS static float scratch[SLICES][COLUMNS];
    const u32 slice = thread_index() / COLUMNS, own = thread_index() % COLUMNS, column = block * COLUMNS + own;
    const float *from = partial_sums(a);
    float sum = 0.0f;
    if (column < a.channels)
        for (u32 row = slice; row < row_blocks(a); row += SLICES) sum += from[u64(row) * a.channels + column];
    scratch[slice][own] = sum;
    barrier();
    if (slice > 0 || column >= a.channels) return;
    sum = 0.0f;
    for (u32 i = 0; i < SLICES; ++i) sum += scratch[i][own];
    ((T *)a.sums)[column] = from_float<T>(sum);
}

template <class T> HIPVIT_DEVICE void round_float8_finish(const RoundFloat8Args &a) {
    const u32 summing = a.sums ? (a.channels - 1) / ROUND_FLOAT8_SUMMED + 1 : 0;
    if (block_index() < summing) return finish_sums<T>(a, block_index()); // all threads
    HIPVIT_LDS static float scratch[THREADS / WAVE];
    const RowGroup<THREADS> group{true, scratch};
    const u32 blocks = column_blocks(a) * row_blocks(a);
    float underflows = 0.0f, overflows = 0.0f, largest = 0.0f;
    for (u32 i = thread_index(); i < blocks; i += THREADS) {
        const float *of_block = figures(a) + u64(i) * ROUND_FLOAT8_FIGURES;
        underflows += of_block[0], overflows += of_block[1], largest = larger(largest, of_block[2]);
    }
    underflows = group.template reduce<Sum>(underflows), overflows = group.template reduce<Sum>(overflows);
    largest = group.template reduce<Max>(largest);
    const u32 i = thread_index();
    const float elements = float(u64(a.rows) * a.channels);
    if (i == 0) a.next[0] = underflows / elements, a.next[1] = overflows / elements;
    if (i < ROUND_FLOAT8_HISTORY)
        a.next[ROUND_FLOAT8_RATES + i] = i == 0 ? largest : a.statistics[ROUND_FLOAT8_RATES + i - 1];
}

#define SOURCE_ENTRY(name, T, SOURCE, suffix)                                                                          \
    HIPVIT_KERNEL(ROUND_FLOAT8_THREADS) name##_largest##suffix##_##T(RoundFloat8Args a) {                              \
        name##_largest<T, Float8SourceCode::SOURCE>(a);                                                                \
    }                                                                                                                  \
    HIPVIT_KERNEL(ROUND_FLOAT8_THREADS) name##suffix##_##T(RoundFloat8Args a) {                                        \
        name<T, Float8SourceCode::SOURCE, false>(a);                                                                   \
    }                                                                                                                  \
    HIPVIT_KERNEL(ROUND_FLOAT8_THREADS) name##_stored##suffix##_##T(RoundFloat8Args a) {                               \
        name<T, Float8SourceCode::SOURCE, true>(a);                                                                    \
    }
#define ENTRY(name, T)                                                                                                 \
    SOURCE_ENTRY(name, T, Value, )                                                                                     \
    SOURCE_ENTRY(name, T, Activation, _activation)                                                                     \
    SOURCE_ENTRY(name, T, Slope, _slope)                                                                               \
    HIPVIT_KERNEL(ROUND_FLOAT8_THREADS) name##_finish_##T(RoundFloat8Args a) { name##_finish<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, round_float8)
