// wire: copies several pieces of tensors, rounds f32 to the nearest bf16, or converts bf16 to f32, whatever the dtype of the other kernels.
//
// Shapes: x and out [elements] of each piece.
// Alignment: any, of whole elements; copies use vec128 access where both addresses allow it.
// Arithmetic: rounding to nearest, ties to even. Copies keep the bits.
// Geometry: blocks of WIRE_THREADS, which take WIRE_PART elements each.
#include "wire.h"
#include "vec128.hpp"

using namespace hipvit;

template <class Word> HIPVIT_DEVICE void copy(const Word *x, Word *out, u32 left) {
    u32 copied = 0;
    if (aligned(x, VEC128_BYTES) && aligned(out, VEC128_BYTES)) {
        const u32 vectors = left / VEC<Word>;
        for (u32 at = thread_index(); at < vectors; at += WIRE_THREADS) ((Vec128 *)out)[at] = ((const Vec128 *)x)[at];
        copied = vectors * VEC<Word>;
    }
    for (u32 at = copied + thread_index(); at < left; at += WIRE_THREADS) out[at] = x[at];
}

template <class T> HIPVIT_DEVICE void wire(const WireArgs &a) {
    u32 index = 0;
    while (index + 1 < a.count && block_index() >= a.pieces[index + 1].first_part) ++index;
    const WirePiece &piece = a.pieces[index];
    const u64 start = u64(block_index() - piece.first_part) * WIRE_PART;
    const u32 left = u32(piece.elements - start < WIRE_PART ? piece.elements - start : WIRE_PART);
    if (a.from_bytes == 4 && a.to_bytes == 4) {
        copy((const u32 *)piece.x + start, (u32 *)piece.out + start, left);
    } else if (a.from_bytes == 2 && a.to_bytes == 2) {
        copy((const u16 *)piece.x + start, (u16 *)piece.out + start, left);
    } else if (a.from_bytes == 4) {
        for (u64 at = start + thread_index(); at < start + left; at += WIRE_THREADS)
            ((bf16 *)piece.out)[at] = from_float<bf16>(((const float *)piece.x)[at]);
    } else {
        for (u64 at = start + thread_index(); at < start + left; at += WIRE_THREADS)
            ((float *)piece.out)[at] = to_float(((const bf16 *)piece.x)[at]);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(WIRE_THREADS) name##_##T(WireArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, wire)
