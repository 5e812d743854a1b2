// patch_extract: pixels → normalised rows of the patch matrix.
//
// patch_extract_T: pixels u8 [B,H,W,3] → T [B·N, h·w·3], an element being pixel · scale[c] + shift[c], in the order row,
//   column, channel; N = ⌊H/h⌋·⌊W/w⌋, what is beyond the last whole patch is not looked at.
// patch_extract_chw_T: values f32 [B,3,H,W] → T [B·N, 3·h·w], in the order channel, row, column.
// Alignment: any; eight pixels' bytes are loaded and a pack stored at once where the addresses allow it.
// Arithmetic: f32. Geometry: blocks of 256; a thread takes PACK elements (16 bytes of output) of a run, a run being what
//   lies together in memory: a patch's part of an image row.
#include "patch_extract.h"
#include "pack.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void extract(const PatchExtractArgs &a, bool chw) {
    const u32 runs = chw ? 3 * a.patch_height : a.patch_height, run = chw ? a.patch_width : 3 * a.patch_width;
    const u32 across = a.width / a.patch_width, down = a.height / a.patch_height;
    const MatrixPack<T> pack(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), run);
    const u64 patch = pack.row / runs;
    const u32 in_patch = u32(pack.row % runs);
    if (patch >= u64(a.images) * across * down) return;

    const u64 image = patch / (across * down);
    const u32 place = u32(patch % (across * down));
    const u32 channel = chw ? in_patch / a.patch_height : 0;
    const u32 y = place / across * a.patch_height + (chw ? in_patch % a.patch_height : in_patch);
    const u32 x = place % across * a.patch_width;

    float value[PACK<T>];
    if (chw) {
        const float *from = (const float *)a.pixels + ((image * 3 + channel) * a.height + y) * a.width + x + pack.column;
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i)
            value[i] = i < pack.valid ? multiply_add(from[i], a.scale[channel], a.shift[channel]) : 0.0f;
    } else {
        const u8 *from = (const u8 *)a.pixels + ((image * a.height + y) * a.width + x) * 3 + pack.column;
        union {
            u32 word[PACK<T> / 4];
            u8 byte[PACK<T>];
        } pixels;
        if (pack.valid == PACK<T> && aligned(from, PACK<T>)) {
            if constexpr (PACK<T> == 8) {
                Bytes8 both = *reinterpret_cast<const Bytes8 *>(from);
                pixels.word[0] = both.word[0];
                pixels.word[1] = both.word[1];
            } else {
                pixels.word[0] = *reinterpret_cast<const u32 *>(from);
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < PACK<T>; ++i) pixels.byte[i] = i < pack.valid ? from[i] : 0;
        }
        u32 c = pack.column % 3;
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) {
            float scale = c == 0 ? a.scale[0] : c == 1 ? a.scale[1] : a.scale[2];
            float shift = c == 0 ? a.shift[0] : c == 1 ? a.shift[1] : a.shift[2];
            value[i] = multiply_add(float(pixels.byte[i]), scale, shift);
            c = c == 2 ? 0 : c + 1;
        }
    }
    T *to = (T *)a.out + pack.row * run + pack.column;
    store_pack(to, pack.valid, aligned(to, 16), value);
}

HIPVIT_KERNEL(ELEMENTWISE_THREADS) patch_extract_f32(PatchExtractArgs a) { extract<float>(a, false); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) patch_extract_f16(PatchExtractArgs a) { extract<f16>(a, false); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) patch_extract_bf16(PatchExtractArgs a) { extract<bf16>(a, false); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) patch_extract_chw_f32(PatchExtractArgs a) { extract<float>(a, true); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) patch_extract_chw_f16(PatchExtractArgs a) { extract<f16>(a, true); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) patch_extract_chw_bf16(PatchExtractArgs a) { extract<bf16>(a, true); }
