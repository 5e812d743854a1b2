// Keys that are visible to a query by position, for attention and softmax. The key mask is applied on top.
#pragma once
#include "device.hpp"
#include "visibility.h"

namespace hipvit {

struct KeyRange {
    u32 first, count;

    HIPVIT_DEVICE KeyRange() {}
    HIPVIT_DEVICE KeyRange(u32 first, u32 count) : first(first), count(count) {}
    HIPVIT_DEVICE KeyRange(const Visibility &v, u32 query, u32 keys) {
        const long long own = (long long)query + v.diagonal;
        const long long begin = own - v.left, last = own + v.right;
        first = begin < 0 ? 0 : begin < (long long)keys ? u32(begin) : keys;
        const u32 end = last < 0 ? 0 : last < (long long)keys ? u32(last) + 1 : keys;
        count = end > first ? end - first : 0;
    }
    HIPVIT_DEVICE u32 end() const { return first + count; }
    HIPVIT_DEVICE bool contains(u32 key) const { return key - first < count; }
};

} // namespace hipvit
