#include "attention/pattern.hpp"

namespace hipvit {

template <class T> struct Pattern : PatternInputs<T> {
    HIPVIT_DEVICE Pattern(const AttentionPattern &a, u32 image, u32 head) : PatternInputs<T>(a, image, head) {
        const float v0 = float_of(this->a.scalars[0]);
    }
    static constexpr bool SCORES = true;
    static constexpr bool ADDS = false;
    static constexpr bool MASKS = false;
    HIPVIT_DEVICE float score(float s, u32 query, u32 key) const {
        const float v0 = float_of(this->a.scalars[0]);
        const float v1 = s;
        const float v2 = op_div(v1, v0);
        const float v3 = op_tanh(v2);
        const float v4 = op_mul(v0, v3);
        return v4;
    }
    HIPVIT_DEVICE float addend(u32 query, u32 key) const {
        return 0.0f;
    }
    HIPVIT_DEVICE bool visible(u32 query, u32 key) const {
        return true;
    }
};

} // namespace hipvit

HIPVIT_PATTERN_ENTRIES(64)
