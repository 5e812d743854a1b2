// Arguments of round_float8.
#pragma once
#include "activation.h"
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `round_float8`.
constexpr unsigned ROUND_FLOAT8_THREADS = 256;
/// Rows and columns of a tile, which is transposed in LDS.
constexpr unsigned ROUND_FLOAT8_TILE = 128;
/// Rows of a block: two tiles.
constexpr unsigned ROUND_FLOAT8_ROWS = 256;
/// Blocks that find the largest magnitude before there is a history.
constexpr unsigned ROUND_FLOAT8_LARGEST_BLOCKS = 64;
/// Columns that a block of the last stage sums.
constexpr unsigned ROUND_FLOAT8_SUMMED = 32;
/// Figures of each block: numbers of underflows and overflows, and the largest magnitude.
constexpr unsigned ROUND_FLOAT8_FIGURES = 3;
/// Elements of the statistics that precede the history.
constexpr unsigned ROUND_FLOAT8_RATES = 2;
/// Elements of the history.
constexpr unsigned ROUND_FLOAT8_HISTORY = 16;
/// Alignment of the scale behind the bytes.
constexpr unsigned ROUND_FLOAT8_ALIGNMENT = 16;

/// 8-bit formats of training.
enum class Float8Code : unsigned {
    /// Activations and weights.
    E4M3,
    /// Gradients.
    E5M2,
};

/// Numbers that `round_float8` rounds.
enum class Float8SourceCode : unsigned {
    /// x.
    Value,
    /// f(x).
    Activation,
    /// f'(x) · dy.
    Slope,
};

/// The kernels of `round_float8`, in the order of their launches.
enum class RoundFloat8Stage : unsigned {
    /// The largest magnitude of a share of the elements, if the scale depends on it.
    Largest,
    /// The rounded numbers, and the figures and sums of each block.
    Round,
    /// The statistics and the sums, from those of all blocks.
    Finish,
};

/// `round_float8`: out = the numbers v of the source, rounded to FP8 with one power of two as the scale.
struct RoundFloat8Args {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[rows, channels]` for the source `Slope`, otherwise null.
    DEVICE_POINTER(const void) dy;
    /// f32 `[ROUND_FLOAT8_RATES + ROUND_FLOAT8_HISTORY]`: statistics of the steps before.
    DEVICE_POINTER(const float) statistics;
    /// `[rows, channels]`: T, or bytes followed by their scale, an f32.
    DEVICE_POINTER(void) out;
    /// `[channels, padded_rows]`, as `out`. The columns beyond `rows` are 0.
    DEVICE_POINTER(void) transposed;
    /// f32 `[ROUND_FLOAT8_RATES + ROUND_FLOAT8_HISTORY]`: the new statistics.
    DEVICE_POINTER(float) next;
    /// T `[channels]`: sums of the columns of v. May be null.
    DEVICE_POINTER(void) sums;
    /// f32 `[ROUND_FLOAT8_LARGEST_BLOCKS + ROUND_FLOAT8_FIGURES · blocks + row blocks · channels]`.
    DEVICE_POINTER(float) scratch;
    /// Rows of x.
    unsigned rows;
    /// Columns of x.
    unsigned channels;
    /// Columns of `transposed`.
    unsigned padded_rows;
    /// One of [`Float8Code`].
    unsigned format;
    /// One of [`Float8SourceCode`].
    unsigned source;
    /// One of [`ActivationCode`], for sources with a function.
    unsigned activation;
    /// Bit 0: the scale is that of the history, unless that is all 0. Bit 1: the results are bytes.
    unsigned flags;
    /// One of [`RoundFloat8Stage`].
    unsigned stage;
};

} // namespace hipvit
