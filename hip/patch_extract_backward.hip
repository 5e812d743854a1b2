// patch_extract_backward: the gradient of images from that of their patches, dy · scale[c] for channel c. Pixels beyond the last whole
// patch get 0.
//
// Shapes, with N = ⌊H/h⌋ · ⌊W/w⌋ patches of h × w. Pixels are rows of pixels or, with `chw`, planes.
//   Rows: dy T [B · N, h · w · 3], in the order row, column, channel → dx T [B, H, W, 3].
//   Planes: dy T [B · N, 3 · h · w], in the order channel, row, column → dx T [B, 3, H, W].
// Alignment: any; vec128 stores where the row of the image and the address allow it, and vec128 loads where also all elements are of one
//   patch.
// Accumulator: f32.
// Geometry: blocks of ELEMENTWISE_THREADS, a vec128 of a row of dx per thread. A row is a row of an image or of a plane.
#include "patch_extract_backward.h"
#include "vec128.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void patch_extract_backward(const PatchExtractBackwardArgs &a) {
    const bool chw = a.chw != 0;
    // A run is a patch's part of a row of dx. It is contiguous in dy.
    const u32 columns = chw ? a.width : 3 * a.width, run = chw ? a.patch_width : 3 * a.patch_width;
    const u32 planes = chw ? 3 : 1, down = a.height / a.patch_height, across = a.width / a.patch_width;
    const MatrixVec<T> vec(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), columns);
    if (vec.row >= u64(a.images) * planes * a.height) return;
    const u64 plane = divide(vec.row, a.height), image = divide(plane, planes);
    const u32 y = u32(vec.row - plane * a.height), channel = u32(plane - image * planes);
    const u32 length = 3 * a.patch_height * a.patch_width;
    const u64 first_patch = (image * down + y / a.patch_height) * across;
    // Offset of the run in its patch.
    const u32 offset = (channel * a.patch_height + y % a.patch_height) * run;
    const bool covered = y < down * a.patch_height;
    const T *dy = (const T *)a.dy;

    float value[VEC<T>];
    const u32 patch = vec.column / run;
    if (covered && patch < across && (vec.column + vec.valid - 1) / run == patch) {
        const T *from = dy + (first_patch + patch) * length + offset + vec.column % run;
        load_vec(from, vec.valid, aligned(from, VEC128_BYTES), value);
    } else {
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) {
            const u32 column = vec.column + i, of = column / run;
            const bool exists = covered && i < vec.valid && of < across;
            value[i] = exists ? to_float(dy[(first_patch + of) * length + offset + column % run]) : 0.0f;
        }
    }
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i) {
        const u32 c = chw ? channel : (vec.column + i) % 3;
        value[i] *= c == 0 ? a.scale[0] : c == 1 ? a.scale[1] : a.scale[2];
    }
    T *to = (T *)a.dx + vec.row * columns + vec.column;
    store_vec(to, vec.valid, aligned(to, VEC128_BYTES), value);
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ELEMENTWISE_THREADS) name##_##T(PatchExtractBackwardArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, patch_extract_backward)
