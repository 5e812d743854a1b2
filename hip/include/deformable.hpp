// Places of sampled points, for deformable_attention and its derivative.
#pragma once
#include "device.hpp"

namespace hipvit {

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

// The first of the two pixels of an axis that a point reads, and the weight of the second one.
struct AxisTaps {
    int first;
    float rest;

    HIPVIT_DEVICE AxisTaps(float at, u32 extent, bool discrete) {
        if (discrete) {
            first = int(smaller(larger(limited(at + 0.5f), 0.0f), float(extent - 1)));
            rest = 0.0f;
        } else {
            const float place = limited(at - 0.5f), floor = floor_of(place);
            first = int(floor);
            rest = place - floor;
        }
    }
    // The weight of the first or the second pixel.
    HIPVIT_DEVICE float share(int tap) const { return tap ? rest : 1.0f - rest; }
    // The weight of any pixel.
    HIPVIT_DEVICE float weight(int index) const {
        const int tap = index - first;
        return tap == 0 || tap == 1 ? share(tap) : 0.0f;
    }
};

} // namespace hipvit
