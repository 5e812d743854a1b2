// transpose: out = gamma · xᵀ of each image, plus y or times y. Around a linear layer it makes the layer mix tokens.
//
// Shapes: x T [images, rows, columns]; gamma T [rows] or null; y T [images, kept, width] or null; out T
//   [images, kept, width], kept ≤ columns, width ≥ rows. All row-major; out may alias y.
// Alignment: any; vec128 access where the extents and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of TRANSPOSE_THREADS, a tile each: TRANSPOSE_LINE bytes of up to TRANSPOSE_ROWS rows of x, so that whole lines of the
//   result are written if an image has no more rows. The tile goes through LDS unconverted, 32 words a row: a thread reads or writes 16
//   bytes along the rows of x and of the result, and has all its loads in flight at once.
#include "transpose.h"
#include "vec128.hpp"

using namespace hipvit;

// Words of a row of the tile.
constexpr u32 WORDS = TRANSPOSE_LINE / 4;

// The place of a word of the tile in LDS. Banks differ between the threads of a wave: threads that write have four rows and every fourth
// word, threads that read have every VEC<T>th row of a column.
template <class T> HIPVIT_DEVICE u32 place_of(u32 row, u32 word) {
    return row * WORDS + ((word ^ (row / VEC<T>) ^ (row % 4)) % WORDS);
}

// Loads the first `valid` elements at `from`; the others become 0. `vector`: all or none are valid, and `from` is aligned to 16 bytes.
template <class T> HIPVIT_DEVICE Vec<T> load_stored(const T *from, u32 valid, bool vector) {
    Vec<T> vec{};
    if (vector) {
        if (valid) vec.whole = *reinterpret_cast<const Vec128 *>(from);
    } else {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i)
            if (i < valid) vec.element[i] = from[i];
    }
    return vec;
}

// Calls each(vector), where `vector` says whether `address` and the following rows of `columns` elements all start with a vec128. The test
// is outside the loop of `each`, so that no branch comes between its loads.
template <class T, class Each> HIPVIT_DEVICE void by_alignment(const void *address, u32 columns, const Each &each) {
    if (columns % VEC<T> == 0 && aligned(address, VEC128_BYTES)) {
        each(true);
    } else {
        each(false);
    }
}

// Columns of a tile, vec128s of a row of it, and vec128s of the tile per thread, both when it is read and when it is written.
template <class T> constexpr u32 COLUMNS = TRANSPOSE_LINE / sizeof(T);
template <class T> constexpr u32 VECS = COLUMNS<T> / VEC<T>;
template <class T> constexpr u32 SHARE = TRANSPOSE_ROWS * VECS<T> / TRANSPOSE_THREADS;

// Calls visit(s, column, row) for the thread's vec128s of the result, with the tile's column and row. A row of the result's tile has
// `lines` vec128s.
template <class T, class Visit> HIPVIT_DEVICE void for_each_of_result(u32 lines, const Visit &visit) {
#pragma unroll
    for (u32 s = 0; s < SHARE<T>; ++s) {
        const u32 index = thread_index() + s * TRANSPOSE_THREADS, column = index / lines;
        visit(s, column, (index - column * lines) * VEC<T>);
    }
}

template <class T> HIPVIT_DEVICE void transpose(const TransposeArgs &a) {
    HIPVIT_LDS static u32 tile[TRANSPOSE_ROWS * WORDS];

    // Tiles of equal height, in whole vec128s of the result.
    const u32 down = (a.width + TRANSPOSE_ROWS - 1) / TRANSPOSE_ROWS, across = (a.kept + COLUMNS<T> - 1) / COLUMNS<T>;
    const u32 lines = ((a.width + down - 1) / down + VEC<T> - 1) / VEC<T>, height = lines * VEC<T>;
    const u32 image = block_index() / (down * across), place = block_index() % (down * across);
    if (image >= a.images) return; // the whole block
    const u32 row = place / across * height, column = place % across * COLUMNS<T>;

    const T *x = (const T *)a.x + u64(image) * a.rows * a.columns + column;
    Vec<T> vec[SHARE<T>];
    by_alignment<T>(a.x, a.columns, [&](bool vector) {
#pragma unroll
        for (u32 s = 0; s < SHARE<T>; ++s) {
            const u32 index = thread_index() + s * TRANSPOSE_THREADS, r = index / VECS<T>, at = index % VECS<T> * VEC<T>;
            // Also reads columns that are not kept, so that whole vectors are read up to the end of a padded row.
            const bool exists = r < height && row + r < a.rows && column + at < a.columns;
            vec[s] = load_stored(x + u64(row + r) * a.columns + at, exists ? a.columns - column - at : 0, vector);
        }
    });
#pragma unroll
    for (u32 s = 0; s < SHARE<T>; ++s) {
        const u32 index = thread_index() + s * TRANSPOSE_THREADS, r = index / VECS<T>;
#pragma unroll
        for (u32 word = 0; word < 4; ++word) tile[place_of<T>(r, index % VECS<T> * 4 + word)] = vec[s].whole.word[word];
    }

    // From here on the thread's vec128s are those of the result, and of y.
    const u64 first = u64(image) * a.kept * a.width + row;
    auto valid = [&](u32 line, u32 at) {
        const bool exists = line < COLUMNS<T> && column + line < a.kept && row + at < a.width;
        return exists ? a.width - row - at < VEC<T> ? a.width - row - at : VEC<T> : 0;
    };
    if (a.y) {
        by_alignment<T>(a.y, a.width, [&](bool vector) {
            for_each_of_result<T>(lines, [&](u32 s, u32 line, u32 at) {
                const u64 from = first + u64(column + line) * a.width + at;
                vec[s] = load_stored((const T *)a.y + from, valid(line, at), vector);
            });
        });
    }
    barrier();
    for_each_of_result<T>(lines, [&](u32 s, u32 line, u32 at) {
        const u32 count = valid(line, at);
        if (count == 0) return;
        float gamma[VEC<T>], value[VEC<T>];
        if (a.gamma) {
            const T *from = (const T *)a.gamma + row + at;
            load_vec(from, row + at < a.rows ? a.rows - row - at : 0, aligned(from, VEC128_BYTES), gamma);
        }
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            Vec<T> word;
            word.whole.word[0] = tile[place_of<T>(at + i, line * sizeof(T) / 4)];
            value[i] = line % (4 / sizeof(T)) ? word[4 / sizeof(T) - 1] : word[0];
            if (a.gamma) value[i] *= gamma[i];
            if (a.y) value[i] = a.multiply ? value[i] * vec[s][i] : value[i] + vec[s][i];
        }
        T *out = (T *)a.out + first + u64(column + line) * a.width + at;
        store_vec(out, count, aligned(out, VEC128_BYTES), value);
    });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(TRANSPOSE_THREADS) name##_##T(TransposeArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, transpose)
