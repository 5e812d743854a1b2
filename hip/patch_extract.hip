// patch_extract: turns images into normalised rows of the patch matrix, pixel · scale[c] + shift[c] for channel c.
//
// Shapes, with N = ⌊H/h⌋ · ⌊W/w⌋ patches of h × w. Pixels beyond the last whole patch are not read.
//   patch_extract_T: u8 [B, H, W, 3] → T [B · N, h · w · 3], in the order row, column, channel.
//   patch_extract_chw_T: f32 [B, 3, H, W] → T [B · N, 3 · h · w], in the order channel, row, column.
// Alignment: any; vec128 stores, and loads of the same number of pixels, where the addresses allow it.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a run of the output per thread. A run is contiguous in the image: a patch's part
//   of one image row.
#include "patch_extract.h"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void extract_patches(const PatchExtractArgs &a, bool chw) {
    const u32 runs = chw ? 3 * a.patch_height : a.patch_height, run = chw ? a.patch_width : 3 * a.patch_width;
    const u32 across = a.width / a.patch_width, down = a.height / a.patch_height;
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), run);
    const u64 patch = divide(vec.row, runs);
    const u32 in_patch = u32(vec.row - patch * runs);
    if (patch >= u64(a.images) * across * down) return;

    const u64 image = divide(patch, across * down);
    const u32 place = u32(patch - image * (across * down));
    const u32 channel = chw ? in_patch / a.patch_height : 0;
    const u32 y = place / across * a.patch_height + (chw ? in_patch % a.patch_height : in_patch);
    const u32 x = place % across * a.patch_width;

    float value[VEC<T>];
    if (chw) {
        const float *from = (const float *)a.pixels + ((image * 3 + channel) * a.height + y) * a.width + x + vec.column;
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i)
            value[i] = i < vec.valid ? multiply_add(from[i], a.scale[channel], a.shift[channel]) : 0.0f;
    } else {
        const u8 *from = (const u8 *)a.pixels + ((image * a.height + y) * a.width + x) * 3 + vec.column;
        union {
            u32 word[VEC<T> / 4];
            u8 byte[VEC<T>];
        } pixels;
        if (vec.valid == VEC<T> && aligned(from, VEC<T>)) {
            if constexpr (VEC<T> == 8) {
                Vec64 both = *reinterpret_cast<const Vec64 *>(from);
                pixels.word[0] = both.word[0];
                pixels.word[1] = both.word[1];
            } else {
                pixels.word[0] = *reinterpret_cast<const u32 *>(from);
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) pixels.byte[i] = i < vec.valid ? from[i] : 0;
        }
        u32 c = vec.column % 3;
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            float scale = c == 0 ? a.scale[0] : c == 1 ? a.scale[1] : a.scale[2];
            float shift = c == 0 ? a.shift[0] : c == 1 ? a.shift[1] : a.shift[2];
            value[i] = multiply_add(float(pixels.byte[i]), scale, shift);
            c = c == 2 ? 0 : c + 1;
        }
    }
    T *to = (T *)a.out + vec.row * run + vec.column;
    store_vec(to, vec.valid, aligned(to, 16), value);
}

template <class T> HIPVIT_DEVICE void patch_extract(const PatchExtractArgs &a) { extract_patches<T>(a, false); }
template <class T> HIPVIT_DEVICE void patch_extract_chw(const PatchExtractArgs &a) { extract_patches<T>(a, true); }

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(PatchExtractArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, patch_extract)
HIPVIT_FOR_DTYPES(ENTRY, patch_extract_chw)
