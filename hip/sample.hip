// sample: chooses a token of each row of logits by a random number.
//
// Shapes: logits T or f32 [rows, length]; rules f32 [rows, 4]; top_k i32 [rows]; values as logits, [rows]; tokens i32 [rows]. All row-major.
// Alignment: any.
// Accumulator: weights are integers of 64 bits, in units of 2^-40 of the largest. Their sums and the choice do not depend on an order.
// Geometry: a block of SAMPLE_THREADS per row. A limit that leaves out tokens is found digit by digit from histograms of the weights in LDS.
//   Each wave then adds the weights of a part of the row. The one whose part has the random number walks through it. A row of temperature 0
//   ends after its maximum.
#include "sample.h"
#include "atomics.hpp"
#include "row_elements.hpp"
#include "wave.hpp"

using namespace hipvit;

constexpr u32 DIGITS = 256;
// Lanes of a wave that add to one number would wait for each other. The copies of a digit are beside each other, in all banks of LDS:
// 93 µs for 50 of 50,272 logits in f32, 123 µs with 8 copies, 277 µs with 8 whole histograms (H200, CUDA 13.2).
constexpr u32 COPIES = 16;

struct SampleShared {
    u64 bins[DIGITS * COPIES], digits[DIGITS], sums[SAMPLE_THREADS / WAVE], needed, mass;
    u32 digit;
};

HIPVIT_DEVICE u64 read_lane(u64 x, int from) {
    return u64(read_lane(u32(x >> 32), from)) << 32 | read_lane(u32(x), from);
}

HIPVIT_DEVICE u32 high_product(u32 a, u32 b) { return u32(u64(a) * b >> 32); }

// 2^((logit - largest) · factor) in units of 2^-40. The CPU and the reference in crates/graph/src/op/sample.rs compute the same bits.
HIPVIT_DEVICE u64 weight(float logit, float largest, float factor) {
    // ln(2)^k / k! · 2^32, from k = 1 on.
    constexpr u32 SERIES[] = {2977044472u, 1031764991u, 238388332u, 41309550u, 5726720u, 661577u, 65510u, 5676u, 437u, 30u};
    const float exponent = (largest - logit) * factor;
    if (!(exponent < 40.0f)) return 0;
    const u32 fixed = u32(exponent * 16777216.0f), fraction = fixed << 8;
    u32 sum = 0;
#pragma unroll
    for (int k = 9; k >= 0; --k) sum = SERIES[k] - high_product(fraction, sum);
    return ((u64(1) << 32) - high_product(fraction, sum)) << 8 >> (fixed >> 24);
}

// sum · numerator / 2^24, rounded up. No product exceeds 64 bits.
HIPVIT_DEVICE u64 fraction_of(u64 sum, u32 numerator) {
    constexpr u64 MASK = (1 << 24) - 1;
    return (sum >> 24) * numerator + (((sum & MASK) * numerator + MASK) >> 24);
}

// The value of the largest element of this order.
HIPVIT_DEVICE float value_of(u32 order) { return float_of(order >> 31 ? order & 0x7fffffff : ~order); }

struct LargerOf {
    static HIPVIT_DEVICE u64 combine(u64 a, u64 b) { return a > b ? a : b; }
};
struct SumOf {
    static HIPVIT_DEVICE u64 combine(u64 a, u64 b) { return a + b; }
};

template <class Op> HIPVIT_DEVICE u64 combine_wave(u64 x) {
    for (int bit = 1; bit < WAVE; bit *= 2) x = Op::combine(x, read_lane(x, lane_index() ^ bit));
    return x;
}

// All threads get the result.
template <class Op> HIPVIT_DEVICE u64 combine_block(u64 x, SampleShared &shared) {
    x = combine_wave<Op>(x);
    barrier(); // the previous sums have been read
    if (lane_index() == 0) shared.sums[wave_index()] = x;
    barrier();
    u64 all = 0;
    for (u32 wave = 0; wave < SAMPLE_THREADS / WAVE; ++wave) all = Op::combine(all, shared.sums[wave]);
    return all;
}

struct Limit {
    u32 key;
    // The mass of the elements of this key, and the part of it that is needed.
    u64 mass, needed;
};

// The largest key from which on elements have a mass of at least `needed`, which is above 0 and at most the mass of all. `key` and `mass` are functions of an index and its
// element.
template <class E, class Key, class Mass>
HIPVIT_DEVICE Limit find_limit(const E *x, u32 length, u64 needed, SampleShared &shared, const Key &key, const Mass &mass) {
    Limit limit{0, 0, needed};
#pragma unroll 1
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (u32 i = thread_index(); i < DIGITS * COPIES; i += SAMPLE_THREADS) shared.bins[i] = 0;
        barrier();
        u64 *bins = shared.bins + thread_index() % COPIES;
        for_each_element<SAMPLE_THREADS, 1>(x, length, [&](u32 index, E element) {
            const u32 own = key(index, element);
            if (shift < 24 && own >> (shift + 8) != limit.key >> (shift + 8)) return;
            if (const u64 added = mass(index, element)) atomic_add(bins + (own >> shift) % DIGITS * COPIES, added);
        });
        barrier();
        u64 own = 0;
        if (thread_index() < DIGITS) {
            // Neighbours begin at different banks.
            for (u32 i = 0; i < COPIES; ++i) own += shared.bins[thread_index() * COPIES + (thread_index() + i) % COPIES];
            shared.digits[thread_index()] = own;
        }
        barrier();
        if (thread_index() < DIGITS) {
            u64 above = 0;
            for (u32 digit = thread_index() + 1; digit < DIGITS; ++digit) above += shared.digits[digit];
            if (above < limit.needed && limit.needed <= above + own) {
                shared.digit = thread_index();
                shared.mass = own;
                shared.needed = limit.needed - above;
            }
        }
        barrier();
        limit = {limit.key | shared.digit << shift, shared.mass, shared.needed};
    }
    return limit;
}

template <class E> HIPVIT_DEVICE void sample_row(const SampleArgs &a, SampleShared &shared) {
    const u32 row = block_index();
    if (row >= a.rows) return; // the whole block
    const E *x = (const E *)a.logits + u64(row) * a.length;
    const auto write = [&](u32 token) {
        ((E *)a.values)[row] = x[token];
        a.tokens[row] = int(token);
    };
    u64 best = 0;
    for_each_element<SAMPLE_THREADS, 4>(x, a.length, [&](u32 index, E element) {
        best = LargerOf::combine(best, u64(order_of(element)) << 32 | (0xffffffff - index));
    });
    best = combine_block<LargerOf>(best, shared);
    const u32 likely = 0xffffffff - u32(best);
    const float largest = to_float(x[likely]), *rules = a.rules + u64(row) * 4;
    const float temperature = rules[0], top_p = rules[1];
    if (temperature == 0.0f || !(absolute(largest) < infinity())) {
        if (thread_index() == 0) write(likely);
        return;
    }
    const float factor = smaller(LOG2_E / temperature, 3.40282347e+38f);
    const auto order = [](u32, E element) { return order_of(element); };
    u32 least = 0, first = 0;
    const u32 top_k = u32(a.top_k[row]);
    if (top_k > 0 && top_k < a.length) {
        least = find_limit(x, a.length, top_k, shared, order, [](u32, E) { return u64(1); }).key;
    }
    // Elements of the least order stay from the first index on.
    const auto mass = [&](u32 index, E element) {
        const u32 own = order_of(element);
        return own > least || (own == least && index >= first) ? weight(to_float(element), largest, factor) : 0;
    };
    if (top_p < 1.0f) {
        u64 own = 0;
        for_each_element<SAMPLE_THREADS, 1>(x, a.length, [&](u32 index, E element) { own += mass(index, element); });
        const u64 needed = fraction_of(combine_block<SumOf>(own, shared), u32(top_p * 16777216.0f));
        const Limit limit = find_limit(x, a.length, needed > 0 ? needed : 1, shared, order, mass);
        const u64 each = weight(value_of(limit.key), largest, factor), excess = (limit.mass - limit.needed) / each;
        if (excess > 0) {
            const auto equal = [&](u32, E element) { return u64(order_of(element) == limit.key); };
            const u64 kept = limit.mass / each - excess;
            first = find_limit(x, a.length, kept, shared, [](u32 index, E) { return index; }, equal).key;
        }
        least = limit.key;
    }
    const u32 part = (a.length + SAMPLE_THREADS / WAVE - 1) / (SAMPLE_THREADS / WAVE), begin = u32(wave_index()) * part;
    const u32 end = begin + part < a.length ? begin + part : a.length;
    u64 own = 0;
    for (u32 i = begin + lane_index(); i < end; i += WAVE) own += mass(i, x[i]);
    own = combine_wave<SumOf>(own);
    const u64 sum = combine_block<SumOf>(lane_index() == 0 ? own : 0, shared);
    const u32 random = u32(rules[2] * 65536.0f) << 16 | u32(rules[3] * 65536.0f);
    const u64 target = (sum >> 32) * random + ((sum & 0xffffffff) * random >> 32);
    u64 before = 0;
    for (int wave = 0; wave < wave_index(); ++wave) before += shared.sums[wave];
    if (target < before || target >= before + own) return; // the whole wave
    for (u32 start = begin; before <= target; start += WAVE) {
        const u32 index = start + lane_index();
        const u64 single = index < end ? mass(index, x[index]) : 0;
        u64 upto = before + single;
        for (int lanes = 1; lanes < WAVE; lanes *= 2) {
            const u64 added = read_lane(upto - before, (lane_index() - lanes) & (WAVE - 1));
            upto += lane_index() >= lanes ? added : 0;
        }
        if (upto > target && upto - single <= target) write(index);
        before = read_lane(upto, WAVE - 1);
    }
}

template <class T> HIPVIT_DEVICE void sample(const SampleArgs &a) {
    HIPVIT_LDS static SampleShared shared;
    if (sizeof(T) == sizeof(float) || a.kind == 1) {
        sample_row<float>(a, shared);
    } else {
        sample_row<T>(a, shared);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(SAMPLE_THREADS) name##_##T(SampleArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, sample)
