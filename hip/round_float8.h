// Arguments of round_float8.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `round_float8`.
constexpr unsigned ROUND_FLOAT8_THREADS = 256;
/// Elements that a block of `round_float8` rounds.
constexpr unsigned ROUND_FLOAT8_PART = 4096;

/// 8-bit formats of training.
enum class Float8Code : unsigned {
    /// Activations and weights.
    E4M3,
    /// Gradients.
    E5M2,
};

/// The kernels of `round_float8`, in the order of their launches.
enum class RoundFloat8Stage : unsigned {
    /// The largest magnitude of each part of x.
    Largest,
    /// The scale, from the largest magnitude. One block.
    Scale,
    /// out and the count of each part.
    Round,
    /// The rate, from the counts. One block.
    Rate,
};

/// `round_float8`: out = x, rounded to FP8 with one power of two as the scale, or x if the switch is 0.
struct RoundFloat8Args {
    /// T `[elements]`.
    DEVICE_POINTER(const void) x;
    /// T `[elements]`; may alias `x`.
    DEVICE_POINTER(void) out;
    /// f32 `[1]`.
    DEVICE_POINTER(const float) on;
    /// f32 `[parts]`: the largest magnitude of each part.
    DEVICE_POINTER(float) largest;
    /// f32 `[1]`.
    DEVICE_POINTER(float) scale;
    /// f32 `[parts]`: number of the elements of each part that are not 0 and become 0.
    DEVICE_POINTER(float) counts;
    /// f32 `[1]`: the sum of the counts, divided by the number of elements.
    DEVICE_POINTER(float) rate;
    /// Number of elements.
    unsigned elements;
    /// One of [`Float8Code`].
    unsigned format;
    /// One of [`RoundFloat8Stage`].
    unsigned stage;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
