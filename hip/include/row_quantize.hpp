// Rounding of rows to 8 bits with a scale for each row, bit for bit as src/ops/float8.rs and src/ops/int8.rs round.
//
// A quantizer includes every element of its thread's part of the row. Then the group agrees on the scale, one of its threads stores
// it, and the quantizer rounds and stores the same elements.
#pragma once
#include "float8.hpp"
#include "quantize_code.h"
#include "wave.hpp"

namespace hipvit {

// Smallest normal number. A smaller scale has no inverse.
constexpr float SMALLEST_SCALE = 1.17549435e-38f;

// Rounds to E4M3 of x · (1/scale), where a row's scale makes its largest magnitude 448.
struct Float8Quantizer {
    float largest = 0.0f, factor;
    bool is_rounded;

    // NaN becomes infinity, as larger would leave it out.
    HIPVIT_DEVICE void include(float v) { largest = larger(largest, v != v ? infinity() : absolute(v)); }

    // Finds the scale of row `index` of the matrix. Args has the fields of QuantizeArgs.
    template <class Args, class Group> HIPVIT_DEVICE void agree(const Args &a, const Group &group, u32 index) {
        largest = group.template reduce<Max>(largest);
        const float scale = largest / FLOAT8_LARGEST;
        // A row whose scale has no inverse becomes zeros. An infinite scale makes the results NaN.
        const bool is_finite = largest < infinity();
        is_rounded = is_finite && scale >= SMALLEST_SCALE;
        factor = is_rounded ? 1.0f / scale : 0.0f;
        if (group.rank() == 0)
            ((float *)a.ranges)[index] = is_rounded ? scale * FLOAT8_UNIT : is_finite ? 0.0f : float_of(0x7fc00000);
    }

    // Stores the first `valid` of N elements. `vector`: `to` is aligned to N bytes.
    template <u32 N> HIPVIT_DEVICE void store(u8 *to, u32 valid, bool vector, float (&x)[N]) const {
#pragma unroll
        for (u32 i = 0; i < N; ++i) x[i] = is_rounded ? x[i] : 0.0f;
        store_float8(to, valid, vector, factor, x);
    }
};

// The 256 levels of a row, x ≈ scale · (q − zero).
struct Int8Levels {
    QuantizeCode code;
    // The row's range, extended to 0: from −below to high.
    float high = 0.0f, below = 0.0f;
    float scale, inverse;
    int zero;
    bool is_zero;

    // NaN becomes infinity, as larger would leave it out.
    HIPVIT_DEVICE void include(float v) {
        high = larger(high, v != v ? infinity() : v);
        below = larger(below, -v);
    }

    // Finds the levels. Args has the fields of QuantizeArgs.
    template <class Args, class Group> HIPVIT_DEVICE void find(const Args &a, const Group &group) {
        code = QuantizeCode(a.code);
        high = group.template reduce<Max>(high), below = group.template reduce<Max>(below);
        const bool is_finite = high < infinity() && below < infinity();
        scale = code == QuantizeCode::Fixed       ? a.factor
                : code == QuantizeCode::Magnitude ? larger(high, below) / 127.5f
                                                  : high / 255.0f + below / 255.0f;
        is_zero = !is_finite || scale < SMALLEST_SCALE;
        inverse = 1.0f / scale;
        // A row with NaN or infinity gives NaN. A row of zeros has the scale 0.
        if (is_zero) scale = is_finite ? 0.0f : float_of(0x7fc00000);
        zero = code == QuantizeCode::Fixed       ? int(a.zero)
               : code == QuantizeCode::Magnitude ? 128
                                                 : int(nearest(below * inverse));
        if (is_zero) zero = 0;
    }

    // The level next to v, which may be beyond the ends. The levels of a row's range are multiplied. Others, which may come from a file, are
    // divided: ties round as in src/ops/int8.rs.
    HIPVIT_DEVICE float unclamped(float v) const {
        const float steps = code == QuantizeCode::Range ? v * inverse : v / scale;
        return nearest(smaller(larger(steps, -256.0f), 256.0f)) + float(zero);
    }
    // Written out: with a call of `unclamped`, clang 22 compiles quantize_int8 to other code, which has not been timed.
    HIPVIT_DEVICE u32 level(float v) const {
        const float steps = code == QuantizeCode::Range ? v * inverse : v / scale;
        const float rounded = nearest(smaller(larger(steps, -256.0f), 256.0f)) + float(zero);
        return u32(is_zero ? 0.0f : smaller(larger(rounded, 0.0f), 255.0f));
    }
};

// Rounds to 256 levels, and stores q − 128, since GEMMs multiply signed bytes.
struct Int8Quantizer : Int8Levels {
    // Finds the levels of row `index` of the matrix. Args has the fields of QuantizeArgs.
    template <class Args, class Group> HIPVIT_DEVICE void agree(const Args &a, const Group &group, u32 index) {
        find(a, group);
        if (group.rank() == 0) {
            float *ranges = (float *)a.ranges + u64(index) * 2;
            ranges[0] = scale, ranges[1] = float(zero - 128);
        }
    }

    // Stores the first `valid` of N elements. `vector`: `to` is aligned to N bytes.
    template <u32 N> HIPVIT_DEVICE void store(u8 *to, u32 valid, bool vector, const float (&x)[N]) const {
        ByteVec<N> bytes;
#pragma unroll
        for (u32 w = 0; w < N / 4; ++w) {
            bytes.word[w] = 0;
#pragma unroll
            for (u32 i = 0; i < 4; ++i) bytes.word[w] |= (level(x[4 * w + i]) ^ 128) << 8 * i;
        }
        store_bytes(to, valid, vector, bytes);
    }
};

} // namespace hipvit
