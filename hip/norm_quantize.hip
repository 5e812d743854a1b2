// layer_norm_float8_rows, rms_norm_float8_rows: E4M3 of the norm of each row, as layer_norm and then quantize_float8_rows write it.
// layer_norm_int8, rms_norm_int8: 256 levels of the norm of each row, as layer_norm and then quantize_int8 write them.
// The bits are those of the two kernels: the norm is rounded to T before its scales are found and it is rounded to 8 bits.
//
// Shapes: x T [rows, channels]; weight, bias T [channels]; out bytes [rows, channels]; ranges f32 [rows] or [rows, 2], as in quantize.hip.
//   All row-major, with any number of channels. out and ranges alias nothing.
// Alignment: any, of whole elements; vec128 access, and 4 or 8 bytes at once, where the addresses allow it.
// Accumulator: f32, as in layer_norm.hip.
// Geometry: blocks of FEW_ROWS_THREADS, or of WIDE_ROW_THREADS (entries `_wide`), as layer_norm for the same rows. The part of a row that a
//   thread keeps in registers is normed there; the norms of the rest of a longer row are computed twice.
#include "norm_quantize.h"
#include "norm.hpp"
#include "row_quantize.hpp"

using namespace hipvit;

// Rounds like layer_norm. Without `opaque`, clang fuses a product with its conversion to f16 as an fma with 0, which turns −0 into 0.
template <class T> HIPVIT_DEVICE T rounded_to(float result) { return from_float<T>(opaque(result)); }

// Rounds the norms of row `index` to T, and then to 8 bits.
template <class T, class Quantizer, class Group> struct QuantizedNorms {
    const QuantizeArgs &a;
    const Group &group;
    u32 index;

    template <class Row, class Normalize> HIPVIT_DEVICE void vectors(Row &row, const Normalize &normalize) const {
        u8 *const out = (u8 *)a.out + u64(index) * a.channels;
        Quantizer quantizer;
        auto include = [&](const Vec<T> &vec, u32 at, u32 s) {
            float norms[VEC<T>];
            normalize(vec, at, s, norms);
            Vec<T> rounded;
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) {
                rounded.element[i] = rounded_to<T>(norms[i]);
                quantizer.include(rounded[i]);
            }
            return rounded;
        };
        auto store = [&](const Vec<T> &rounded, u32 at) {
            float norms[VEC<T>];
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) norms[i] = rounded[i];
            quantizer.store(out + at * VEC<T>, VEC<T>, true, norms);
        };
        row.for_each_kept([&](const Vec<T> &vec, u32 at, u32 s) { row.kept[s].whole = include(vec, at, s).whole; });
        row.for_each_beyond(include);
        quantizer.agree(a, group, index);
        row.for_each_kept([&](const Vec<T> &rounded, u32 at, u32) { store(rounded, at); });
        // Including an element again changes nothing after `agree`.
        row.for_each_beyond([&](const Vec<T> &vec, u32 at, u32 s) { store(include(vec, at, s), at); });
    }

    template <class Row, class Load, class Normalize>
    HIPVIT_DEVICE void any(Row &row, const Load &load, const Normalize &normalize) const {
        u8 *const out = (u8 *)a.out + u64(index) * a.channels;
        Quantizer quantizer;
        auto load_rounded = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
            load(column, valid, vec);
            normalize(column, valid, vec);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) vec[i] = to_float(rounded_to<T>(vec[i]));
        };
        row.again(load_rounded, [&](u32, float v) { quantizer.include(v); });
        quantizer.agree(a, group, index);
        row.finish(
            load_rounded, [](u32, float &) {},
            [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
                quantizer.store(out + column, valid, aligned(out, VEC<T>), vec);
            });
    }
};

template <class T, bool RMS, class Quantizer, int THREADS, u32 REGISTERS = ROW_REGISTERS>
HIPVIT_DEVICE void norm_quantize(const NormQuantizeArgs &a) {
    HIPVIT_LDS static float scratch[THREADS / WAVE];
    const RowGroup<THREADS> group{a.norm.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.norm.rows) return; // a whole wave, or a whole block
    const QuantizedNorms<T, Quantizer, RowGroup<THREADS>> result{a.quantize, group, index};
    // The null bias of rms_norm is aligned too.
    const u64 addresses = (u64)a.norm.x | (u64)a.quantize.out | (u64)a.norm.weight | (u64)a.norm.bias;
    if (a.norm.channels % VEC<T> == 0 && addresses % VEC128_BYTES == 0) {
        normalize_vectors<T, RMS, THREADS == FEW_ROWS_THREADS, REGISTERS>(a.norm, group, index, result);
    } else {
        normalize_any<T, RMS>(a.norm, group, index, result);
    }
}

template <class T, bool RMS, class Quantizer> HIPVIT_DEVICE void norm_quantize_wide(const NormQuantizeArgs &a) {
    norm_quantize<T, RMS, Quantizer, WIDE_ROW_THREADS, WIDE_ROW / WAVE>(a);
}

#define ENTRIES(name, RMS, Quantizer, T)                                                                               \
    HIPVIT_KERNEL(FEW_ROWS_THREADS) name##_##T(NormQuantizeArgs a) {                                                   \
        norm_quantize<T, RMS, Quantizer, FEW_ROWS_THREADS>(a);                                                         \
    }                                                                                                                  \
    HIPVIT_KERNEL(WIDE_ROW_THREADS) name##_wide_##T(NormQuantizeArgs a) { norm_quantize_wide<T, RMS, Quantizer>(a); }
#define ENTRY(name, T)                                                                                                 \
    ENTRIES(layer_##name##_float8_rows, false, Float8Quantizer, T)                                                     \
    ENTRIES(layer_##name##_int8, false, Int8Quantizer, T)                                                              \
    ENTRIES(rms_##name##_float8_rows, true, Float8Quantizer, T)                                                        \
    ENTRIES(rms_##name##_int8, true, Int8Quantizer, T)
HIPVIT_FOR_DTYPES(ENTRY, norm)
