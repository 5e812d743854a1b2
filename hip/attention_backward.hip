// attention_backward: the gradients of out = softmax(scale · Q·Kᵀ + bias + mask) · V. No product of queries and keys is stored: the
// probabilities are computed again from the scores and ln Σ e^s (https://arxiv.org/abs/2205.14135).
//
//   attention_backward_<D>_kv_T    dK and dV, for heads of d ≤ D channels, padded to D with zeros; attention.h lists the D
//   attention_backward_<D>_q_T     dQ, or its summands if all images share the queries
//   attention_backward_<D>_…_bias_T  both with a bias T [H, Nq, Nk] of the scores
//   attention_backward_<D>_bias_T  the gradient of the bias
//
// attention_backward_rows.hip computes before what all of them need of each query: log₂ Σ e^s and Σ o · dy.
//
// Shapes: q, dy, dq T [B, Nq, H · d]; k, v, dk, dv T [B, Nk, H · d], by strides; rows f32 [B, H, Nq, 2]. Any Nq and Nk. Visible keys:
//   include/visibility.h, from first_key on. Gradients of rows without visible keys or queries are 0.
// Alignment: any; vec128 access where d, the strides and the addresses allow it.
// Accumulators: f32. P and dS are rounded to T for the products of the gradients.
// Order: each sum has a fixed order, so the bits depend only on the operands. No atomics.
// Geometry: a block holds keys (kv) or queries (q) of one head of one image and passes over the others in tiles, or takes a tile of both and
//   passes over a chunk of the images (bias); the module global <entry>_block has the sizes (attention_backward.h). Grid: images × heads × ⌈rows /
//   rows of a block⌉, or chunks × heads × tiles of both; blocks beyond that return at once.
//
// attention/ has the tile configurations (backward_config.hpp), the policies that say what a score becomes (backward_policy.hpp), what all
// blocks share (backward.hpp), and the blocks.
#include "attention_backward.h"
#include "attention/backward_block.hpp"

using namespace hipvit;

template <class T, int D> using PlainKv = AttentionBackwardKv<T, D, PlainScore<T>>;
template <class T, int D> using PlainQ = AttentionBackwardQ<T, D, PlainScore<T>>;
template <class T, int D> using BiasedKv = AttentionBackwardKv<T, D, BiasedScore<T>>;
template <class T, int D> using BiasedQ = AttentionBackwardQ<T, D, BiasedScore<T>>;
template <class T, int D> using OfBias = AttentionBackwardBias<T, D, BiasedScore<T>>;

#define ENTRY(D, SUFFIX, T, BLOCK)                                                                                     \
    HIPVIT_KERNEL_BLOCKS((BLOCK<T, D>::THREADS), (BLOCK<T, D>::MIN_BLOCKS))                                            \
    HIPVIT_WAVES((BLOCK<T, D>::MIN_WAVES))                                                                             \
    attention_backward_##D##SUFFIX##_##T(BLOCK<T, D>::Args a) { attention_backward<BLOCK<T, D>>(a, a.operands); }                  \
    HIPVIT_MODULE_GLOBAL(attention_backward_##D##SUFFIX##_##T##_block,                                                 \
                         BLOCK<T, D>::WAVES << ATTENTION_BACKWARD_WAVES_SHIFT |                                        \
                             BLOCK<T, D>::TILE << ATTENTION_BACKWARD_TILE_SHIFT | BLOCK<T, D>::ROWS)

#define PLAIN_ENTRY(D, T) ENTRY(D, _kv, T, PlainKv) ENTRY(D, _q, T, PlainQ)
#define BIAS_ENTRY(D, T) ENTRY(D, _kv_bias, T, BiasedKv) ENTRY(D, _q_bias, T, BiasedQ) ENTRY(D, _bias, T, OfBias)
#define PLAIN_ENTRIES(D) HIPVIT_FOR_DTYPES(PLAIN_ENTRY, D)
#define BIAS_ENTRIES(D) HIPVIT_FOR_DTYPES(BIAS_ENTRY, D)

// Compiled at run time for one head size and variant, which saves time: HIPVIT_HEAD_DIM or HIPVIT_BIAS_HEAD_DIM.
#if defined(HIPVIT_HEAD_DIM)
PLAIN_ENTRIES(HIPVIT_HEAD_DIM)
#elif defined(HIPVIT_BIAS_HEAD_DIM)
BIAS_ENTRIES(HIPVIT_BIAS_HEAD_DIM)
#else
HIPVIT_ATTENTION_HEAD_DIMS(PLAIN_ENTRIES)
HIPVIT_ATTENTION_HEAD_DIMS(BIAS_ENTRIES)
#endif
