// attention: out = softmax(scale · Q·Kᵀ + bias + mask) · V in one pass over the keys, by an online softmax on matrix cores.
//
//   attention_<D>_T         heads of d ≤ D channels, padded to D with zeros; attention.h lists the D
//   attention_<D>_split_T   for small grids: a block takes 16 queries, and its waves share out the keys
//   attention_<D>_bias_T    adds a bias T [H, Nq, Nk] to the scores
//   attention_<D>_rope_T    rotates pairs of channels of Q and K in LDS as rope.hip does, and rounds them to T
//   attention_<D>_stats_T   with or without a bias; also writes statistics of the softmax, f32 [B, H, Nq, 3], of the probabilities before
//                           they are rounded
//
// Shapes: q, out T [B, Nq, H · d]; k, v T [B, Nk, H · d]. All by strides, so that packed QKV is read in place; out may be bytes, E4M3.
//   Any Nq and Nk. Visible keys: include/visibility.h. The output of a query without visible keys is 0.
// Alignment: any; vec128 access where d, the strides and the addresses allow it.
// Accumulators: f32 for S = Q·Kᵀ, the row sums and O; P is rounded to T for P·V.
// Geometry: a block takes some queries of one head of one image, 16 per wave, or two groups of 16; the module global
//   attention_<D>_T_block has the number of waves and of queries (attention.h). Grid: images × heads × ⌈Nq / queries⌉; blocks beyond
//   that return at once. K and V go through LDS in tiles of 32 to 64 keys.
//
// attention/ has the tile configurations (config.hpp), the entries' policies (policy.hpp), what all blocks share (core.hpp), and the blocks:
// staged.hpp, cdna.hpp and async.hpp differ in how K and V reach LDS, warpgroup.hpp is async.hpp's for Hopper, split.hpp shares out the keys.
#include "attention.h"
#include "attention/block.hpp"
#include "attention/policy.hpp"
#include "attention/split.hpp"

using namespace hipvit;

template <class T, int D> using Plain = Block<T, D, PlainPolicy<T>>;
template <class T, int D> using Bias = Block<T, D, BiasPolicy<T>>;
template <class T, int D> using Statistics = Block<T, D, StatisticsPolicy<T>>;
template <class T, int D> using Rotation = Block<T, D, RotationPolicy<T>>;

template <bool SPLIT, class T, int D> struct SelectSplit {
    using Type = Plain<T, D>;
};
template <class T, int D> struct SelectSplit<true, T, D> {
    using Type = SplitAttention<T, D>;
};
template <class T, int D> using Split = typename SelectSplit<SPLITS<T>, T, D>::Type;

template <class Block> HIPVIT_DEVICE void attention(const typename Block::Policy::Args &args) {
    using Policy = typename Block::Policy;
    alignas(LDS_ALIGNMENT) HIPVIT_LDS static Vec128 memory[Block::LDS_VECS];
    const AttentionArgs &a = Policy::attention(args);
    const u32 tiles = (a.queries + Block::QUERIES - 1) / Block::QUERIES;
    const u32 head = block_index() / tiles % a.heads;
    const u32 image = block_index() / tiles / a.heads;
    if (image >= a.images) return;
    Block(a, memory, image, head, block_index() % tiles * Block::QUERIES, Policy(args, head)).run();
}

#define ENTRY(D, SUFFIX, T, BLOCK)                                                                                     \
    HIPVIT_KERNEL_BLOCKS((BLOCK<T, D>::THREADS), (BLOCK<T, D>::MIN_BLOCKS))                                            \
    HIPVIT_WAVES((BLOCK<T, D>::MIN_WAVES))                                                                             \
    attention_##D##SUFFIX##_##T(BLOCK<T, D>::Policy::Args a) { attention<BLOCK<T, D>>(a); }                            \
    HIPVIT_MODULE_GLOBAL(attention_##D##SUFFIX##_##T##_block,                                                          \
                         BLOCK<T, D>::WAVES << ATTENTION_WAVES_SHIFT | BLOCK<T, D>::QUERIES)

#define PLAIN_ENTRY(D, T) ENTRY(D, , T, Plain) ENTRY(D, _split, T, Split)
#define BIAS_ENTRY(D, T) ENTRY(D, _bias, T, Bias)
#define ROPE_ENTRY(D, T) ENTRY(D, _rope, T, Rotation)
#define STATS_ENTRY(D, T) ENTRY(D, _stats, T, Statistics)
#define PLAIN_ENTRIES(D) HIPVIT_FOR_DTYPES(PLAIN_ENTRY, D)
#define BIAS_ENTRIES(D) HIPVIT_FOR_DTYPES(BIAS_ENTRY, D)
#define ROPE_ENTRIES(D) HIPVIT_FOR_DTYPES(ROPE_ENTRY, D)
#define STATS_ENTRIES(D) HIPVIT_FOR_DTYPES(STATS_ENTRY, D)

// Compiled at run time for one head size and variant, which saves time: HIPVIT_HEAD_DIM, HIPVIT_BIAS_HEAD_DIM and so on.
#if defined(HIPVIT_HEAD_DIM)
PLAIN_ENTRIES(HIPVIT_HEAD_DIM)
#elif defined(HIPVIT_BIAS_HEAD_DIM)
BIAS_ENTRIES(HIPVIT_BIAS_HEAD_DIM)
#elif defined(HIPVIT_STATS_HEAD_DIM)
STATS_ENTRIES(HIPVIT_STATS_HEAD_DIM)
#elif defined(HIPVIT_ROPE_HEAD_DIM)
ROPE_ENTRIES(HIPVIT_ROPE_HEAD_DIM)
#else
HIPVIT_ATTENTION_HEAD_DIMS(PLAIN_ENTRIES)
HIPVIT_ATTENTION_HEAD_DIMS(BIAS_ENTRIES)
HIPVIT_ATTENTION_HEAD_DIMS(ROPE_ENTRIES)
HIPVIT_ATTENTION_HEAD_DIMS(STATS_ENTRIES)
#endif
