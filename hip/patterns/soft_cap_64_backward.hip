#define HIPVIT_PATTERN_HEAD_DIM 64
#include "attention/pattern_backward.hpp"

namespace hipvit {

template <class T> struct Pattern : PatternInputs<T> {
    HIPVIT_DEVICE Pattern(const AttentionPattern &a, u32 image, u32 head) : PatternInputs<T>(a, image, head) {
        const float v0 = float_of(this->a.scalars[0]);
        const float v5 = 1.00000000e0f;
    }
    static constexpr bool SCORES = true;
    static constexpr bool MASKS = false;
    HIPVIT_DEVICE float score(float s, u32 query, u32 key) const {
        const float v0 = float_of(this->a.scalars[0]);
        const float v1 = s;
        const float v2 = op_div(v1, v0);
        const float v3 = op_tanh(v2);
        const float v4 = op_mul(v0, v3);
        return v4;
    }
    HIPVIT_DEVICE float derivative(float s, u32 query, u32 key) const {
        const float v0 = float_of(this->a.scalars[0]);
        const float v1 = s;
        const float v2 = op_div(v1, v0);
        const float v3 = op_tanh(v2);
        const float v5 = 1.00000000e0f;
        const float v6 = op_mul(v3, v3);
        const float v7 = op_sub(v5, v6);
        const float v8 = op_mul(v0, v7);
        const float v9 = op_div(v8, v0);
        return v9;
    }
    HIPVIT_DEVICE bool visible(u32 query, u32 key) const {
        return true;
    }
};

} // namespace hipvit

HIPVIT_FOR_DTYPES(HIPVIT_PATTERN_BACKWARD, )
