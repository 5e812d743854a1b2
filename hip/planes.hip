// planes: normalised planes of u8 images, in which rectangles are erased as by timm's RandomErasing.
//
// The table has the host's value of each byte, so that the results have its bits.
//
// Shapes: bytes u8 [images, height · width, 3] → out f32 [images, 3, height · width].
// Alignment: any.
// Accumulator: none.
// Geometry: blocks of PLANES_THREADS, a pixel per thread.
// Bounds: rectangles are read below `erasure_count` and values below `value_count`, whatever the starts and rectangles contain.
#include "planes.h"
#include "device.hpp"

using namespace hipvit;

HIPVIT_KERNEL(PLANES_THREADS) planes_f32(PlanesArgs a) {
    const u64 pixels = u64(a.height) * a.width;
    const u64 index = u64(block_index()) * PLANES_THREADS + thread_index();
    const u64 image = index / pixels;
    if (image >= a.images) return;
    const u64 pixel = index - image * pixels;
    const u32 row = u32(pixel / a.width), column = u32(pixel % a.width);
    float value[3];
    for (u32 c = 0; c < 3; ++c) value[c] = a.table[256 * c + a.bytes[3 * index + c]];
    const u32 end = a.starts[image + 1] < a.erasure_count ? a.starts[image + 1] : a.erasure_count;
    for (u32 i = a.starts[image]; i < end; ++i) {
        const u32 *const erasure = a.erasures + u64(i) * PLANES_ERASURE_WORDS;
        const u32 y = row - erasure[0], x = column - erasure[1];
        if (y >= erasure[2] || x >= erasure[3]) continue;
        for (u32 c = 0; c < 3; ++c) {
            const u32 from = erasure[4] + c * erasure[5] + (y * erasure[3] + x) * erasure[6];
            if (from < a.value_count) value[c] = a.values[from];
        }
    }
    float *const out = a.out + image * 3 * pixels + pixel;
    for (u32 c = 0; c < 3; ++c) out[c * pixels] = value[c];
}
