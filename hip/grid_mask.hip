// grid_mask: the key mask of attention that marks the tokens that are patches of an image's grid. NaFlex,
// https://arxiv.org/abs/2502.14786.
//
// Shapes: grids as in include/patch_grid.h; out u8 [B, N].
// Geometry: blocks of ELEMENTWISE_THREADS, a token per thread.
#include "grid_mask.h"
#include "patch_grid.hpp"
#include "vec128.hpp"

using namespace hipvit;

// T is the type of the plan. It only names the entry.
template <class T> HIPVIT_DEVICE void grid_mask(const GridMaskArgs &a) {
    const u64 index = u64(block_index()) * ELEMENTWISE_THREADS + thread_index();
    const u64 image = divide(index, a.tokens);
    if (image >= a.images) return;
    const u32 token = u32(index - image * a.tokens);
    a.out[index] = token < PatchGrid(a.grids, image, a.tokens).patches();
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(GridMaskArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, grid_mask)
