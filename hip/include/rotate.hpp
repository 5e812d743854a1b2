// Rotation of pairs of elements by the cosine and the sine of an angle: rotary position embedding.
#pragma once
#include "device.hpp"

namespace hipvit {

// (a, b) becomes (a cos − b sin, b cos + a sin), with the same rounding in every kernel.
HIPVIT_DEVICE void rotate(float &a, float &b, float cosine, float sine) {
    const float turned = multiply_add(a, cosine, -b * sine);
    b = multiply_add(b, cosine, a * sine);
    a = turned;
}

} // namespace hipvit
