// Attention whose score and mask are the functions of a pattern. The program that includes this file is generated: it defines
//
//   template <class T> struct Pattern : PatternInputs<T>
//     SCORES, score(s, query, key)    the score before the softmax, of s = scale · q·k
//     ADDS, addend(query, key)        what is added to s, the same for all images and exact in T
//     MASKS, visible(query, key)      whether the query sees the key
//
// and ends with HIPVIT_PATTERN_ENTRIES(D), whose entries are attention_pattern_T and attention_pattern_tiles_T.
//
// Masks and addends are evaluated by attention_pattern_tiles_T, once for all images and heads that share them, in the order in which
// attention's lanes have the scores. Tiles that no query sees are skipped.
// Geometry: attention_pattern_T is attention_<D>_T (attention.hip). attention_pattern_tiles_T takes a block of as many threads per tile; the
//   module global attention_pattern_tiles_T_block has its waves << 24 + the tile's queries << 12 + its keys. HIPVIT_TILE, of the same form,
//   replaces the tile that config.hpp selects.
#pragma once
#include "attention_pattern.h"
#include "attention/block.hpp"
#include "attention/pattern_functions.hpp"
#include "attention/policy.hpp"

namespace hipvit {

template <class T, int D> struct PatternPolicy {
    using Args = AttentionPatternArgs;
    static constexpr u32 THREADS = tile_config<T, D>().waves * WAVE;
    static constexpr u32 VECS = tile_config<T, D>().groups * tile_config<T, D>().keys * 16 / WAVE / VEC<T>; // of a thread's scores
    static constexpr bool SCORES = Pattern<T>::SCORES, ADDS = Pattern<T>::ADDS, MASKS = Pattern<T>::MASKS, LOG_SUM_EXP = true;
    static constexpr bool HAS_BIAS = SCORES || ADDS, ROTATES = false, STATISTICS = false;
    const Pattern<T> pattern;
    // The block's row of the tiles in AttentionPatternArgs.
    const u8 *tiles;
    const u32 *visible;
    const Vec128 *addends;
    float *sums; // of the head; may be null

    template <class Block>
    static HIPVIT_DEVICE PatternPolicy of(const Args &a, u32 image, u32 head, u32 query_tile, u32 query_tiles, const Block *) {
        const u32 key_tiles = (a.attention.keys + Block::KEYS - 1) / Block::KEYS;
        const u32 of_image = a.tile_images == 1 ? 0 : image, of_head = a.tile_heads == 1 ? 0 : head;
        const u64 first = ((u64(of_image) * a.tile_heads + of_head) * query_tiles + query_tile) * key_tiles;
        static_assert(VECS == Block::ELEMENTS_OF_LANE / VEC<T>);
        float *const sums = a.log_sum_exp ? a.log_sum_exp + (u64(image) * a.attention.heads + head) * a.attention.queries : nullptr;
        return {Pattern<T>(a.pattern, image, head), a.tiles ? a.tiles + first : nullptr, a.visible_keys + first * Block::THREADS,
                (const Vec128 *)a.addends + first * Block::THREADS * VECS, sums};
    }
    // Whether no query of the block sees a key of the tile, and whether every one sees all.
    HIPVIT_DEVICE bool is_hidden(u32 tile) const { return tiles[tile] == TILE_HIDDEN; }
    HIPVIT_DEVICE bool is_visible(u32 tile) const { return !MASKS || ADDS || tiles[tile] == TILE_VISIBLE; }
    // The keys of a tile that are visible in a thread's scores.
    HIPVIT_DEVICE u32 visible_keys(u32 tile, u32 thread) const { return visible[tile * THREADS + thread]; }
    // Vec128 number `vec` of the addends to a thread's scores of a tile.
    HIPVIT_DEVICE Vec<T> addends_at(u32 tile, u32 vec, u32 thread) const { return {addends[(tile * VECS + vec) * THREADS + thread]}; }
};

template <class T, int D> using PatternBlock = Block<T, D, PatternPolicy<T, D>>;

template <class Block> HIPVIT_DEVICE void attention_pattern(const AttentionPatternArgs &args) {
    alignas(LDS_ALIGNMENT) HIPVIT_LDS static Vec128 memory[Block::LDS_VECS];
    const AttentionArgs &a = args.attention;
    const u32 tiles = (a.queries + Block::QUERIES - 1) / Block::QUERIES;
    const u32 tile = block_index() % tiles, head = block_index() / tiles % a.heads, image = block_index() / tiles / a.heads;
    if (image >= a.images) return;
    const auto policy = Block::Policy::of(args, image, head, tile, tiles, (const Block *)nullptr);
    Block(a, memory, image, head, tile * Block::QUERIES, policy).run();
}

// Writes one tile: its kind, and each thread's visible keys and addends, by the scores that the thread has in Block. Queries that do not
// exist are like the last one; keys that do not exist are hidden.
template <class T, class Block> HIPVIT_DEVICE void attention_pattern_tiles(const AttentionPatternArgs &args) {
    HIPVIT_LDS static u32 seen[2];
    using Tile = typename Block::Tile;
    const AttentionArgs &a = args.attention;
    const u32 query_tiles = (a.queries + Block::QUERIES - 1) / Block::QUERIES, key_tiles = (a.keys + Block::KEYS - 1) / Block::KEYS;
    const u32 key_tile = block_index() % key_tiles, rest = block_index() / key_tiles;
    const u32 query_tile = rest % query_tiles, head = rest / query_tiles % args.tile_heads;
    const u32 image = rest / query_tiles / args.tile_heads;
    if (image >= args.tile_images) return;
    if (thread_index() < 2) seen[thread_index()] = 0;
    barrier();
    static_assert(Block::ELEMENTS_OF_LANE <= 32, "a thread's scores are bits of a u32");
    constexpr int VECS = Block::ELEMENTS_OF_LANE / VEC<T>;
    const Pattern<T> pattern(args.pattern, image, head);
    u32 visible = 0;
    bool hides = false;
    Vec<T> addends[VECS];
#pragma unroll
    for (int at = 0; at < Block::ELEMENTS_OF_LANE; ++at) {
        const int e = at % Tile::VALUES, t = at / Tile::VALUES % (Block::KEYS / 16), g = at / Tile::VALUES / (Block::KEYS / 16);
        const auto place = Tile::of_lane(e);
        const u32 wanted = query_tile * Block::QUERIES + g * Block::GROUP + wave_index() * 16 + place.j;
        const u32 query = wanted < a.queries ? wanted : a.queries - 1;
        const u32 key = key_tile * Block::KEYS + t * 16 + place.i;
        const bool exists = key < a.keys;
        bool sees = exists;
        if constexpr (Pattern<T>::MASKS) {
            sees = exists && pattern.visible(query, key);
            visible |= u32(sees) << at;
            hides |= exists && !sees;
        }
        if constexpr (Pattern<T>::ADDS)
            addends[at / VEC<T>].element[at % VEC<T>] = from_float<T>(sees ? pattern.addend(query, key) : -infinity());
    }
    const u64 tile = block_index();
    if constexpr (Pattern<T>::ADDS) {
        Vec128 *const to = (Vec128 *)args.addends + tile * VECS * Block::THREADS + thread_index();
#pragma unroll
        for (int i = 0; i < VECS; ++i) to[i * Block::THREADS] = addends[i].whole;
    }
    if constexpr (Pattern<T>::MASKS) {
        if constexpr (!Pattern<T>::ADDS) args.visible_keys[tile * Block::THREADS + thread_index()] = visible;
        // Every thread that writes a flag writes the same.
        if (visible) seen[0] = 1;
        if (hides) seen[1] = 1;
        barrier();
        if (thread_index() == 0) args.tiles[tile] = !seen[0] ? TILE_HIDDEN : seen[1] ? TILE_PARTIAL : TILE_VISIBLE;
    }
}

#define HIPVIT_PATTERN_ENTRIES(D) HIPVIT_FOR_DTYPES(HIPVIT_PATTERN_ENTRY, D)
#define HIPVIT_PATTERN_ENTRY(D, T)                                                                                     \
    HIPVIT_KERNEL_BLOCKS((hipvit::PatternBlock<hipvit::T, D>::THREADS), (hipvit::PatternBlock<hipvit::T, D>::MIN_BLOCKS)) \
    attention_pattern_##T(hipvit::AttentionPatternArgs a) {                                                            \
        hipvit::attention_pattern<hipvit::PatternBlock<hipvit::T, D>>(a);                                              \
    }                                                                                                                  \
    HIPVIT_MODULE_GLOBAL(attention_pattern_##T##_block,                                                                \
                         hipvit::PatternBlock<hipvit::T, D>::WAVES << hipvit::ATTENTION_WAVES_SHIFT |                  \
                             hipvit::PatternBlock<hipvit::T, D>::QUERIES)                                              \
    HIPVIT_KERNEL((hipvit::PatternBlock<hipvit::T, D>::THREADS))                                                       \
    attention_pattern_tiles_##T(hipvit::AttentionPatternTilesArgs a) {                                                 \
        hipvit::attention_pattern_tiles<hipvit::T, hipvit::PatternBlock<hipvit::T, D>>(a.attention);                     \
    }                                                                                                                  \
    HIPVIT_MODULE_GLOBAL(attention_pattern_tiles_##T##_block,                                                          \
                         hipvit::PatternBlock<hipvit::T, D>::WAVES << 24 |                                             \
                             hipvit::PatternBlock<hipvit::T, D>::QUERIES << 12 | hipvit::PatternBlock<hipvit::T, D>::KEYS)

} // namespace hipvit
