// grid_positions: adds a square position table to each image's tokens, resampled to the image's grid of patches like PyTorch's
// interpolate with mode "bilinear", antialias and without align_corners. NaFlex, https://arxiv.org/abs/2502.14786.
//
// Shapes: x T [B, N, D]; table T [S, S, D]; grids as in include/patch_grid.h; out T [B, N, D], may be x. All row-major. Tokens
//   beyond the grid's patches get the first patch's position.
// Alignment: any; vec128 access where D and the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a token's channels per thread.
#include "grid_positions.h"
#include "patch_grid.hpp"
#include "vec128.hpp"

using namespace hipvit;

// The cells of one axis, `from` of them, that output `index` of `to` is interpolated from: a triangle as wide as two cells of the coarser
// grid.
struct Taps {
    float centre, widening, sum;
    u32 begin, end;

    HIPVIT_DEVICE Taps(u32 from, u32 to, u32 index) {
        const float scale = float(from) / float(to);
        centre = scale * (float(index) + 0.5f);
        widening = scale > 1.0f ? scale : 1.0f;
        const float low = centre - widening, high = centre + widening + 1.0f;
        begin = low > 0.0f ? u32(low) : 0;
        end = high < float(from) ? u32(high) : from;
        sum = 0.0f;
        for (u32 cell = begin; cell < end; ++cell) sum += weight(cell);
    }

    // Not normalised.
    HIPVIT_DEVICE float weight(u32 cell) const {
        const float distance = (float(cell) + 0.5f - centre) / widening;
        const float value = 1.0f - (distance < 0.0f ? -distance : distance);
        return value > 0.0f ? value : 0.0f;
    }
};

template <class T> HIPVIT_DEVICE void grid_positions(const GridPositionsArgs &a) {
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (vec.row >= u64(a.images) * a.tokens) return;
    const u64 image = divide(vec.row, a.tokens);
    const u32 token = u32(vec.row - image * a.tokens);
    const PatchGrid grid(a.grids, image, a.tokens);
    const u32 patch = token < grid.patches() ? token : 0;
    const Taps rows(a.side, grid.rows, patch / grid.columns), columns(a.side, grid.columns, patch % grid.columns);

    float position[VEC<T>] = {};
    for (u32 row = rows.begin; row < rows.end; ++row) {
        const float row_weight = rows.weight(row);
        for (u32 column = columns.begin; column < columns.end; ++column) {
            const float weight = row_weight * columns.weight(column);
            const T *from = (const T *)a.table + (u64(row) * a.side + column) * a.channels + vec.column;
            float cell[VEC<T>];
            load_vec(from, vec.valid, aligned(from, 16), cell);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) position[i] += weight * cell[i];
        }
    }
    const u64 at = vec.row * a.channels + vec.column;
    const T *from = (const T *)a.x + at;
    float value[VEC<T>];
    load_vec(from, vec.valid, aligned(from, 16), value);
    const float sum = rows.sum * columns.sum;
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) value[i] += position[i] / sum;
    T *to = (T *)a.out + at;
    store_vec(to, vec.valid, aligned(to, 16), value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(GridPositionsArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, grid_positions)
