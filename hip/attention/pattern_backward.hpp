// The backward pass of attention whose score and mask are the functions of a pattern. The program that includes this file is generated: it
// defines
//
//   template <class T> struct Pattern : PatternInputs<T>
//     SCORES, score(s, query, key)         the score before the softmax, of s = scale · q·k
//     derivative(s, query, key)            its derivative with respect to s
//     MASKS, visible(query, key)           whether the query sees the key
//     factor(Load<LOAD>(), s, query, key)  the derivative of the score with respect to what a load of a captured tensor reads
//     offset_of(Load<LOAD>(), query, key)  the element that it reads
//
// It defines the macro HIPVIT_PATTERN_HEAD_DIM, which is D, and ends with HIPVIT_PATTERN_BACKWARD for each dtype, and HIPVIT_PATTERN_LOAD
// for each load and dtype:
//
//   attention_pattern_seen_T         which 16 × 16 scores the mask hides, and which it shows
//   attention_pattern_kv_T, _q_T     attention_backward_<D>_kv_T and _q_T (attention_backward.hip), with their geometry
//   attention_pattern_load_<LOAD>_T  attention_backward_<D>_bias_T for the elements that a load reads
//   attention_pattern_clear_T, _largest_T, _add_<LOAD>_T, _store_T
//                                    stages of the gradient of a captured tensor, a thread for each element or score
//
// A gradient's summands are integers: multiples of a power of two, so small that sums of all scores fit 63 bits. Their sum does not depend
// on the order of the atomic additions.
#pragma once
#include "attention_pattern_backward.h"
#include "attention/backward_block.hpp"
#include "attention/pattern_functions.hpp"
#include "atomics.hpp"

namespace hipvit {

// The number of a load of a captured tensor.
template <int LOAD> struct Load {};

// The layout of AttentionPatternBackward::seen: of each head, the words of each tile of queries, then of each tile of keys.
struct SeenWords {
    u32 query_tiles, key_tiles, query_words, key_words;

    HIPVIT_DEVICE SeenWords(const AttentionPattern &a)
        : query_tiles((a.queries + PATTERN_TILE - 1) / PATTERN_TILE), key_tiles((a.keys + PATTERN_TILE - 1) / PATTERN_TILE),
          query_words((query_tiles + SEEN_TILES - 1) / SEEN_TILES), key_words((key_tiles + SEEN_TILES - 1) / SEEN_TILES) {}
    HIPVIT_DEVICE u32 of_queries() const { return query_tiles * key_words; }
    HIPVIT_DEVICE u32 of_head() const { return of_queries() + key_tiles * query_words; }
};

// How the gradient of queries and keys, LOAD < 0, or of what a load reads follows from that of the score.
template <class T, int LOAD> struct PatternScore {
    using Args = AttentionPatternBackward;
    static constexpr bool IDENTITY = !Pattern<T>::SCORES, GUARDS = Pattern<T>::SCORES, MASKS = Pattern<T>::MASKS;
    const Pattern<T> pattern;
    const SeenTiles *of_queries, *of_keys; // of the image and head
    u32 query_words, key_words;

    HIPVIT_DEVICE PatternScore(const Args &a, u32 image, u32 head) : pattern(a.pattern, image, head) {
        const SeenWords words(a.pattern);
        query_words = words.query_words, key_words = words.key_words;
        const u32 of_image = a.seen_images == 1 ? 0 : image, of_head = a.seen_heads == 1 ? 0 : head;
        of_queries = (const SeenTiles *)a.seen + (u64(of_image) * a.seen_heads + of_head) * words.of_head();
        of_keys = of_queries + words.of_queries();
    }
    HIPVIT_DEVICE float score(float s, u32 query, u32 key) const { return pattern.score(s, query, key); }
    HIPVIT_DEVICE float derivative(float s, u32 query, u32 key) const {
        if constexpr (LOAD < 0) {
            return pattern.derivative(s, query, key);
        } else {
            return pattern.factor(Load<LOAD>(), s, query, key);
        }
    }
    HIPVIT_DEVICE bool visible(u32 query, u32 key) const { return pattern.visible(query, key); }
    template <bool HOLDS_KEYS> HIPVIT_DEVICE SeenTiles seen(u32 tile, u32 word) const {
        return HOLDS_KEYS ? of_keys[tile * query_words + word] : of_queries[tile * key_words + word];
    }
};

// A block writes 32 tiles. Queries and keys that do not exist are neither hidden nor visible.
template <class T> HIPVIT_DEVICE void attention_pattern_seen(const AttentionPatternBackward &args) {
    HIPVIT_LDS static u32 bits[2];
    const AttentionPattern &a = args.pattern;
    const SeenWords words(a);
    const u32 index = block_index() % words.of_head(), rest = block_index() / words.of_head();
    const u32 head = rest % args.seen_heads, image = rest / args.seen_heads;
    if (image >= args.seen_images) return;
    if (thread_index() < 2) bits[thread_index()] = 0;
    barrier();
    const bool holds_keys = index >= words.of_queries();
    const u32 of_rows = holds_keys ? index - words.of_queries() : index, of_row = holds_keys ? words.query_words : words.key_words;
    const u32 row = of_rows / of_row * PATTERN_TILE + thread_index() / PATTERN_TILE;
    const u32 first = of_rows % of_row * SEEN_ROWS, columns = holds_keys ? a.queries : a.keys;
    const Pattern<T> pattern(a, image, head);
    u32 sees = 0, hides = 0;
    if (row < (holds_keys ? a.keys : a.queries)) {
        for (u32 i = 0; i < SEEN_TILES; ++i) {
            const u32 column = first + i * PATTERN_TILE + thread_index() % PATTERN_TILE;
            if (column >= columns) break;
            const bool visible = pattern.visible(holds_keys ? column : row, holds_keys ? row : column);
            sees |= u32(visible) << i, hides |= u32(!visible) << i;
        }
    }
    atomic_or(bits, sees);
    atomic_or(bits + 1, hides);
    barrier();
    if (thread_index() == 0) ((SeenTiles *)args.seen)[block_index()] = {bits[0], bits[0] & ~bits[1]};
}

// The power of two that a gradient's summands are multiples of, as an exponent: they are at most `largest`, and fewer than 2³¹ have the
// same element.
HIPVIT_DEVICE int quantum_exponent(u32 largest, u32 summands) {
    int bits = 0;
    while (bits < 31 && summands >> bits) ++bits;
    const int exponent = int(largest >> 23) - 126 + bits - 62; // largest < 2^(exponent of the sum)
    return exponent < -126 ? -126 : exponent;
}
HIPVIT_DEVICE float power_of_two(int exponent) {
    const int clamped = exponent > 127 ? 127 : exponent < -126 ? -126 : exponent;
    return float_of(u32(clamped + 127) << 23);
}

template <class T> struct PatternGradient {
    using Args = AttentionPatternGradientArgs;
    const Args &a;

    HIPVIT_DEVICE u32 index() const { return block_index() * PATTERN_THREADS + thread_index(); }
    HIPVIT_DEVICE u32 scores() const { return a.pattern.heads * a.pattern.queries * a.pattern.keys; }
    HIPVIT_DEVICE bool exists() const { return index() < scores() * a.images; } // the score

    HIPVIT_DEVICE void clear() const {
        if (index() == 0) *a.largest = 0;
        if (index() < a.elements) a.sums[index()] = 0;
    }
    HIPVIT_DEVICE void largest() const {
        HIPVIT_LDS static u32 of_block;
        if (thread_index() == 0) of_block = 0;
        barrier();
        u32 bits = 0;
        if (exists()) {
            float sum = a.partial[index()];
            if (a.images == 1) {
                for (u32 chunk = 1; chunk < a.chunks; ++chunk) sum += a.partial[u64(chunk) * scores() + index()];
                a.partial[index()] = sum;
            }
            bits = bits_of(absolute(sum)); // of NaN: more than of ∞
        }
        atomic_max(&of_block, bits);
        barrier();
        if (thread_index() == 0) atomic_max(a.largest, of_block);
    }
    template <int LOAD> HIPVIT_DEVICE void add() const {
        if (!exists()) return;
        const float x = a.partial[index()];
        if (x == 0.0f || *a.largest >= bits_of(infinity())) return;
        const u32 key = index() % a.pattern.keys, rest = index() / a.pattern.keys;
        const u32 query = rest % a.pattern.queries, head = rest / a.pattern.queries % a.pattern.heads;
        const u32 image = rest / a.pattern.queries / a.pattern.heads;
        const u32 offset = Pattern<T>(a.pattern, image, head).offset_of(Load<LOAD>(), query, key);
        const float multiple = x * power_of_two(-quantum_exponent(*a.largest, a.summands));
        atomic_add(a.sums + offset, u64(static_cast<long long>(multiple)));
    }
    HIPVIT_DEVICE void store() const {
        if (index() >= a.elements) return;
        const bool is_finite = *a.largest < bits_of(infinity());
        const float sum = float(static_cast<long long>(a.sums[index()])) * power_of_two(quantum_exponent(*a.largest, a.summands));
        ((T *)a.out)[index()] = from_float<T>(is_finite ? sum : float_of(0x7fc00000u));
    }
};

template <class T> using PatternKv = AttentionBackwardKv<T, HIPVIT_PATTERN_HEAD_DIM, PatternScore<T, -1>>;
template <class T> using PatternQ = AttentionBackwardQ<T, HIPVIT_PATTERN_HEAD_DIM, PatternScore<T, -1>>;
template <class T, int LOAD> using PatternLoad = AttentionBackwardBias<T, HIPVIT_PATTERN_HEAD_DIM, PatternScore<T, LOAD>>;

#define HIPVIT_PATTERN_BLOCK_ENTRY(NAME, ARGS, T, ...)                                                                 \
    HIPVIT_KERNEL_BLOCKS((hipvit::__VA_ARGS__::THREADS), (hipvit::__VA_ARGS__::MIN_BLOCKS))                            \
    attention_pattern_##NAME##_##T(hipvit::ARGS a) { hipvit::attention_backward<hipvit::__VA_ARGS__>(a.attention, a.pattern); } \
    HIPVIT_MODULE_GLOBAL(attention_pattern_##NAME##_##T##_block,                                                       \
                         hipvit::__VA_ARGS__::WAVES << hipvit::ATTENTION_BACKWARD_WAVES_SHIFT |                        \
                             hipvit::__VA_ARGS__::TILE << hipvit::ATTENTION_BACKWARD_TILE_SHIFT | hipvit::__VA_ARGS__::ROWS)
#define HIPVIT_PATTERN_GRADIENT_ENTRY(NAME, T, ...)                                                                    \
    HIPVIT_KERNEL(hipvit::PATTERN_THREADS)                                                                             \
    attention_pattern_##NAME##_##T(hipvit::AttentionPatternGradientArgs a) { hipvit::PatternGradient<hipvit::T>{a}.__VA_ARGS__(); }

#define HIPVIT_PATTERN_BACKWARD(unused, T)                                                                             \
    HIPVIT_PATTERN_BLOCK_ENTRY(kv, AttentionPatternKvArgs, T, PatternKv<hipvit::T>)                                    \
    HIPVIT_PATTERN_BLOCK_ENTRY(q, AttentionPatternQArgs, T, PatternQ<hipvit::T>)                                       \
    HIPVIT_KERNEL(hipvit::PATTERN_THREADS)                                                                             \
    attention_pattern_seen_##T(hipvit::AttentionPatternSeenArgs a) { hipvit::attention_pattern_seen<hipvit::T>(a.pattern); }  \
    HIPVIT_PATTERN_GRADIENT_ENTRY(clear, T, clear)                                                                     \
    HIPVIT_PATTERN_GRADIENT_ENTRY(largest, T, largest)                                                                 \
    HIPVIT_PATTERN_GRADIENT_ENTRY(store, T, store)
#define HIPVIT_PATTERN_LOAD(LOAD, T)                                                                                   \
    HIPVIT_PATTERN_BLOCK_ENTRY(load_##LOAD, AttentionPatternLoadArgs, T, PatternLoad<hipvit::T, LOAD>)                 \
    HIPVIT_PATTERN_GRADIENT_ENTRY(add_##LOAD, T, template add<LOAD>)

} // namespace hipvit
