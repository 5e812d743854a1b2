// Rotation of pairs of elements by angles of which the cosine and the sine are given: rotary position embedding.
#pragma once
#include "device.hpp"

namespace hipvit {

// (a, b) becomes (a cos − b sin, b cos + a sin).
HIPVIT_DEVICE void rotate(float &a, float &b, float cosine, float sine) {
    const float turned = a * cosine - b * sine;
    b = b * cosine + a * sine;
    a = turned;
}

} // namespace hipvit
