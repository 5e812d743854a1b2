// Places of sampled points, for deformable_attention and its derivative.
#pragma once
#include "device.hpp"

namespace hipvit {

constexpr float LOG2_E = 1.44269504f;

HIPVIT_DEVICE float floor_of(float x) {
    // Places are limited to ±2³⁰, so that the conversion is exact.
    const float truncated = float(int(x));
    return truncated > x ? truncated - 1.0f : truncated;
}

// NaN samples pixel 0.
HIPVIT_DEVICE float limited(float at) {
    constexpr float FARTHEST = 1.0e9f;
    return at != at ? 0.0f : smaller(larger(at, -FARTHEST), FARTHEST);
}

} // namespace hipvit
