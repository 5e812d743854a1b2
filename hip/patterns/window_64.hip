#include "attention/pattern.hpp"

namespace hipvit {

template <class T> struct Pattern : PatternInputs<T> {
    HIPVIT_DEVICE Pattern(const AttentionPattern &a, u32 image, u32 head) : PatternInputs<T>(a, image, head) {
        const int v2 = int(this->a.scalars[0]);
        const int v5 = int(this->a.scalars[1]);
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
        const int v0 = int(query);
        const int v1 = int(key);
        const int v2 = int(this->a.scalars[0]);
        const int v3 = op_add(v1, v2);
        const bool v4 = op_less_equal(v0, v3);
        const int v5 = int(this->a.scalars[1]);
        const int v6 = op_add(v0, v5);
        const bool v7 = op_less_equal(v1, v6);
        const bool v8 = op_and(v4, v7);
        return v8;
    }
};

} // namespace hipvit

HIPVIT_PATTERN_ENTRIES(64)
