// Counter-based random numbers: Philox 4x32 with 10 rounds.
#pragma once
#include "device.hpp"

namespace hipvit {

struct Random4 {
    u32 word[4];
};

// Returns the numbers of the counter (block, 0, site, 0).
HIPVIT_DEVICE Random4 philox4x32_10(u32 block, u32 site, u32 key0, u32 key1) {
    u32 a = block, b = 0, c = site, d = 0;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 left = u64(a) * 0xD2511F53u, right = u64(c) * 0xCD9E8D57u;
        a = u32(right >> 32) ^ b ^ key0;
        b = u32(right);
        c = u32(left >> 32) ^ d ^ key1;
        d = u32(left);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{a, b, c, d}};
}

} // namespace hipvit
