// checksum: out += Σ word(i) · (2i + 1) · 0x9e3779b97f4a7c15 mod 2⁶⁴, over the words of 32 bits of a buffer. The factors are odd, so that
// buffers that differ in one word have different checksums.
//
// Alignment: 16 bytes.
// Geometry: blocks of CHECKSUM_THREADS, with CHECKSUM_PART words each. Integer sums do not depend on the order of the atomic additions.
#include "atomics.hpp"
#include "checksum.h"
#include "vec128.hpp"

using namespace hipvit;

HIPVIT_DEVICE u64 weighted(u32 word, u64 index) { return word * ((2 * index + 1) * 0x9e3779b97f4a7c15ull); }

HIPVIT_DEVICE void checksum(const ChecksumArgs &a) {
    HIPVIT_LDS static u64 sums[CHECKSUM_THREADS];
    const u64 words = a.bytes / 4, first = u64(block_index()) * CHECKSUM_PART;
    const u64 end = first + CHECKSUM_PART < words ? first + CHECKSUM_PART : words;
    u64 sum = 0;
    for (u64 at = first + thread_index() * 4; at < end; at += CHECKSUM_THREADS * 4) {
        if (at + 4 <= end) {
            const Vec128 vec = *reinterpret_cast<const Vec128 *>((const u32 *)a.from + at);
#pragma unroll
            for (u32 i = 0; i < 4; ++i) sum += weighted(vec.word[i], at + i);
        } else {
            for (u64 i = at; i < end; ++i) sum += weighted(((const u32 *)a.from)[i], i);
        }
    }
    if (first == 0 && thread_index() == 0) {
        u32 word = 0;
        for (u64 i = words * 4; i < a.bytes; ++i) word |= u32(((const unsigned char *)a.from)[i]) << (i % 4 * 8);
        sum += weighted(word, words);
    }
    sums[thread_index()] = sum;
    barrier();
    if (thread_index() != 0) return;
    for (u32 i = 1; i < CHECKSUM_THREADS; ++i) sum += sums[i];
    atomic_add((u64 *)a.out, sum);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(CHECKSUM_THREADS) name##_##T(ChecksumArgs a) { name(a); }
HIPVIT_FOR_DTYPES(ENTRY, checksum)
