// Online softmax: the softmax of rows whose scores come tile by tile, in one pass (https://arxiv.org/abs/1805.02867).
//
//   OnlineSoftmax<Tile, ROWS>   a lane's state of ROWS rows; the lanes of Tile::reduce_column (mma.hpp) share a row
//   update(tile_max, …)         raises the row maxima, and rescales what was summed up below the previous ones
//   probability(s, …)           2^(scale · s − maximum), which it adds to the row's sum
//   sum(row), inverse_sum(row)  of all lanes, in the end
//
// Scores are exponents of 2: the caller's `scale` includes log2(e).
// Accumulators: f32.
#pragma once
#include "wave.hpp"

namespace hipvit {

// 2^x is 0 for lower x. Clamping x to it keeps 2^x · x from being 0 · ∞.
constexpr float MIN_EXPONENT = -200.0f;

// The factor that normalises a row of this sum: 0 stays 0, NaN stays NaN.
HIPVIT_DEVICE float inverse_of_sum(float sum) { return sum > 0.0f ? 1.0f / sum : sum; }

// What is subtracted from scores below the maximum `row_max`: 0 where no key has been visible, since 2^(−∞ − 0) = 0.
HIPVIT_DEVICE float subtrahend_of_max(float row_max) { return row_max == -infinity() ? 0.0f : row_max; }

// LAZY: a maximum that grows little is left as it is, which saves rescaling. P is up to 2^8 then, far below f16's largest value.
// STATISTICS: the sums for the entropy are kept too. They need the maximum itself: the largest probability is 2^0 / row_sum.
template <class Tile, int ROWS, bool LAZY = false, bool STATISTICS = false> struct OnlineSoftmax {
    static_assert(!(LAZY && STATISTICS));

    float row_max[ROWS], row_sum[ROWS];
    float row_weighted[ROWS]; // Σ 2^x · x with x = s − row_max

    HIPVIT_DEVICE OnlineSoftmax() {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            row_max[r] = -infinity();
            row_sum[r] = 0.0f;
            if constexpr (STATISTICS) row_weighted[r] = 0.0f;
        }
    }

    // Raises the maxima to scale · tile_max, where `tile_max` has the maxima of the lane's scores of a tile. Rescales the sums to
    // them, and calls rescale(factors), which multiplies the caller's accumulators by the row's factor. `tile_max` is overwritten.
    template <class Rescale> HIPVIT_DEVICE void update(float (&tile_max)[ROWS], float scale, const Rescale &rescale) {
        bool grow = !LAZY;
#if HIPVIT_AMD
        if constexpr (LAZY) return update_lazily(tile_max, scale, rescale);
#endif
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            tile_max[r] = larger(row_max[r], Tile::template reduce_column<Max>(tile_max[r]) * scale);
            if (LAZY && tile_max[r] > row_max[r] + 8.0f) grow = true;
        }
        if (LAZY && !any_lane(grow)) return;
        float factors[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float change = row_max[r] - subtrahend_of_max(tile_max[r]);
            factors[r] = fast_exp2(change);
            if constexpr (STATISTICS)
                row_weighted[r] = multiply_add(row_sum[r], larger(change, MIN_EXPONENT), row_weighted[r]) * factors[r];
            row_max[r] = tile_max[r];
            row_sum[r] *= factors[r];
        }
        rescale(factors);
    }

#if HIPVIT_AMD
    // The lanes' own maxima tell whether that of a row grows, without a reduction, which goes through LDS. Accumulators are always
    // multiplied: where a branch skips it, clang keeps them twice.
    template <class Rescale> HIPVIT_DEVICE void update_lazily(float (&tile_max)[ROWS], float scale, const Rescale &rescale) {
        bool grow = false;
        float factors[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            grow |= tile_max[r] * scale > row_max[r] + 8.0f;
            factors[r] = 1.0f;
        }
        if (any_lane(grow)) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float largest = larger(row_max[r], Tile::template reduce_column<Max>(tile_max[r]) * scale);
                factors[r] = fast_exp2(row_max[r] - subtrahend_of_max(largest));
                row_max[r] = largest;
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) row_sum[r] *= factors[r];
        rescale(factors);
    }
#endif

    HIPVIT_DEVICE void subtrahends(float (&subtrahend)[ROWS]) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) subtrahend[r] = subtrahend_of_max(row_max[r]);
    }

    // The unnormalised probability of a score of a row, which is added to the row's sums.
    HIPVIT_DEVICE float probability(float s, float scale, float subtrahend, int row) {
        const float x = multiply_add(s, scale, -subtrahend), p = fast_exp2(x);
        row_sum[row] += p;
        if constexpr (STATISTICS) row_weighted[row] = multiply_add(p, larger(x, MIN_EXPONENT), row_weighted[row]);
        return p;
    }

    HIPVIT_DEVICE float sum(int row) const { return Tile::template reduce_column<Sum>(row_sum[row]); }
    HIPVIT_DEVICE float inverse_sum(int row) const { return inverse_of_sum(sum(row)); }
};

} // namespace hipvit
