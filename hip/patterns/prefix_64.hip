#include "attention/pattern.hpp"

namespace hipvit {

template <class T> struct Pattern : PatternInputs<T> {
    HIPVIT_DEVICE Pattern(const AttentionPattern &a, u32 image, u32 head) : PatternInputs<T>(a, image, head) {
        const int v1 = int(this->a.scalars[0]);
    }
    static constexpr bool SCORES = false;
    static constexpr bool ADDS = false;
    static constexpr bool MASKS = true;
    HIPVIT_DEVICE float score(float s, u32 query, u32 key) const {
        return 0.0f;
    }
    HIPVIT_DEVICE float addend(u32 query, u32 key) const {
        return 0.0f;
    }
    HIPVIT_DEVICE bool visible(u32 query, u32 key) const {
        const int v0 = int(key);
        const int v1 = int(this->a.scalars[0]);
        const bool v2 = op_less(v0, v1);
        const int v3 = int(query);
        const bool v4 = op_less_equal(v0, v3);
        const bool v5 = op_or(v2, v4);
        return v5;
    }
};

} // namespace hipvit

HIPVIT_PATTERN_ENTRIES(64)
