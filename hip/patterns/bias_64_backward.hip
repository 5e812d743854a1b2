#define HIPVIT_PATTERN_HEAD_DIM 64
#include "attention/pattern_backward.hpp"

namespace hipvit {

template <class T> struct Pattern : PatternInputs<T> {
    HIPVIT_DEVICE Pattern(const AttentionPattern &a, u32 image, u32 head) : PatternInputs<T>(a, image, head) {
        const int v1 = int(this->head);
        const float v6 = 1.00000000e0f;
    }
    static constexpr bool SCORES = true;
    static constexpr bool MASKS = false;
    HIPVIT_DEVICE float score(float s, u32 query, u32 key) const {
        const float v0 = s;
        const int v1 = int(this->head);
        const int v2 = int(query);
        const int v3 = int(key);
        const float v4 = this->template load_float<0>(v1, v2, v3);
        const float v5 = op_add(v0, v4);
        return v5;
    }
    HIPVIT_DEVICE float derivative(float s, u32 query, u32 key) const {
        const float v6 = 1.00000000e0f;
        return v6;
    }
    HIPVIT_DEVICE bool visible(u32 query, u32 key) const {
        return true;
    }
    HIPVIT_DEVICE float factor(Load<0>, float s, u32 query, u32 key) const {
        const float v6 = 1.00000000e0f;
        return v6;
    }
    HIPVIT_DEVICE u32 offset_of(Load<0>, u32 query, u32 key) const {
        const int v1 = int(this->head);
        const int v2 = int(query);
        const int v3 = int(key);
        return this->template offset<0>(v1, v2, v3);
    }
};

} // namespace hipvit

HIPVIT_FOR_DTYPES(HIPVIT_PATTERN_BACKWARD, )
HIPVIT_FOR_DTYPES(HIPVIT_PATTERN_LOAD, 0)
