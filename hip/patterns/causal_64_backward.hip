#define HIPVIT_PATTERN_HEAD_DIM 64
#include "attention/pattern_backward.hpp"

namespace hipvit {

template <class T> struct Pattern : PatternInputs<T> {
    HIPVIT_DEVICE Pattern(const AttentionPattern &a, u32 image, u32 head) : PatternInputs<T>(a, image, head) {
    }
    static constexpr bool SCORES = false;
    static constexpr bool MASKS = true;
    HIPVIT_DEVICE float score(float s, u32 query, u32 key) const {
        return 0.0f;
    }
    HIPVIT_DEVICE float derivative(float s, u32 query, u32 key) const {
        return 0.0f;
    }
    HIPVIT_DEVICE bool visible(u32 query, u32 key) const {
        const int v0 = int(key);
        const int v1 = int(query);
        const bool v2 = op_less_equal(v0, v1);
        return v2;
    }
};

} // namespace hipvit

HIPVIT_FOR_DTYPES(HIPVIT_PATTERN_BACKWARD, )
