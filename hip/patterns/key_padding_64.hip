#include "attention/pattern.hpp"

namespace hipvit {

template <class T> struct Pattern : PatternInputs<T> {
    HIPVIT_DEVICE Pattern(const AttentionPattern &a, u32 image, u32 head) : PatternInputs<T>(a, image, head) {
        const int v0 = int(this->image);
        const int v3 = 0;
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
        const int v0 = int(this->image);
        const int v1 = int(key);
        const int v2 = this->template load_int<0>(v0, v1);
        const int v3 = 0;
        const bool v4 = op_equal(v2, v3);
        const bool v5 = op_not(v4);
        return v5;
    }
};

} // namespace hipvit

HIPVIT_PATTERN_ENTRIES(64)
