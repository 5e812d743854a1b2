#include "attention/pattern.hpp"

namespace hipvit {

template <class T> struct Pattern : PatternInputs<T> {
    float m10;
    HIPVIT_DEVICE Pattern(const AttentionPattern &a, u32 image, u32 head) : PatternInputs<T>(a, image, head) {
        const int v1 = int(this->head);
        const int v2 = 1;
        const int v3 = op_add(v1, v2);
        const float v4 = op_to_float(v3);
        const int v5 = int(this->a.heads);
        const float v6 = op_to_float(v5);
        const float v7 = op_div(v4, v6);
        const float v8 = -5.54517746e0f;
        const float v9 = op_mul(v7, v8);
        const float v10 = op_exp(v9);
        m10 = v10;
    }
    static constexpr bool SCORES = true;
    static constexpr bool ADDS = false;
    static constexpr bool MASKS = false;
    HIPVIT_DEVICE float score(float s, u32 query, u32 key) const {
        const float v0 = s;
        const float v10 = this->m10;
        const float v15 = op_abs(op_sub(op_to_float(int(query)), op_to_float(int(key))));
        const float v16 = op_mul(v10, v15);
        const float v17 = op_sub(v0, v16);
        return v17;
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
