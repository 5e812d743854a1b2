// Rotation of pairs of elements by angles of which the cosine and the sine are given: rotary position embedding.
#pragma once
#include "device.hpp"

namespace hipvit {

// (a, b) becomes (a cos − b sin, b cos + a sin), rounded alike wherever it is computed.
HIPVIT_DEVICE void rotate(float &a, float &b, float cosine, float sine) {
    const float turned = multiply_add(a, cosine, -b * sine);
    b = multiply_add(b, cosine, a * sine);
    a = turned;
}

} // namespace hipvit
