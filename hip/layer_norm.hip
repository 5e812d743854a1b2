// layer_norm: s = x + residual; out = (s − mean(s)) / √(variance(s) + ε) · weight + bias over the channels, with the
// biased variance; s can be stored too. rms_norm: out = s / √(mean(s²) + ε) · weight. To norm heads, each head is a row.
//
// Shapes: x, residual (or null), sum (or null), out T [rows, channels]; weight, bias T [channels]. All row-major, with
//   any number of channels. sum may alias x or residual, out may alias x; or out is bytes, E4M3, and
//   aliases no input.
// Alignment: any; vec128 access where the addresses allow it.
// Accumulator: f32. First the mean, then the squares of the centred values: mean(s²) − mean(s)² would cancel.
// Geometry: blocks of ROW_THREADS; of FEW_ROWS_THREADS for few rows (entries `_few`); of WIDE_ROW_THREADS for long rows (entries
//   `_wide`). A row per wave, or per block (whole_block) if it has more than WIDE_ROW channels. A thread keeps up to ROW_REGISTERS
//   elements of its row in registers; in the entries `_wide`, as many as a wave needs for WIDE_ROW. All entries compute the same bits
//   for a row that a wave takes.
#include "layer_norm.h"
#include "float8.hpp"
#include "norm.hpp"

using namespace hipvit;

// Stores the norms of row `index`.
template <class T> struct StoredNorms {
    const LayerNormArgs &a;
    u32 index;

    template <class Row, class Normalize> HIPVIT_DEVICE void vectors(const Row &row, const Normalize &normalize) const {
        row.for_each([&](const Vec<T> &vec, u32 at, u32 s) {
            float norms[VEC<T>];
            normalize(vec, at, s, norms);
            store_vec128_as<T>(a.out, u64(index) * a.channels + at * VEC<T>, a.float8_factor, norms);
        });
    }

    template <class Row, class Load, class Normalize>
    HIPVIT_DEVICE void any(Row &row, const Load &load, const Normalize &normalize) const {
        row.finish(
            load, [](u32, float &) {},
            [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
                normalize(column, valid, vec);
                store_vec_as<T>(a.out, u64(index) * a.channels + column, valid, a.float8_factor, vec);
            });
    }
};

template <class T, bool RMS, int THREADS, u32 REGISTERS = ROW_REGISTERS>
HIPVIT_DEVICE void normalize(const LayerNormArgs &a) {
    HIPVIT_LDS static float scratch[THREADS / WAVE];
    const RowGroup<THREADS> group{a.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.rows) return; // a whole wave, or a whole block
    const StoredNorms<T> result{a, index};
    // The null bias of rms_norm is aligned too.
    const u64 addresses = (u64)a.x | (u64)a.out | (u64)a.weight | (u64)a.bias;
    if (a.channels % VEC<T> == 0 && addresses % VEC128_BYTES == 0 && !a.residual && !a.sum) {
        normalize_vectors<T, RMS, THREADS == FEW_ROWS_THREADS, REGISTERS>(a, group, index, result);
    } else {
        normalize_any<T, RMS>(a, group, index, result);
    }
}

template <class T, bool RMS> HIPVIT_DEVICE void normalize_wide(const LayerNormArgs &a) {
    normalize<T, RMS, WIDE_ROW_THREADS, WIDE_ROW / WAVE>(a);
}

#define ENTRIES(name, RMS, T)                                                                                          \
    HIPVIT_KERNEL(ROW_THREADS) name##_##T(LayerNormArgs a) { normalize<T, RMS, ROW_THREADS>(a); }                      \
    HIPVIT_KERNEL(FEW_ROWS_THREADS) name##_few_##T(LayerNormArgs a) { normalize<T, RMS, FEW_ROWS_THREADS>(a); }        \
    HIPVIT_KERNEL(WIDE_ROW_THREADS) name##_wide_##T(LayerNormArgs a) { normalize_wide<T, RMS>(a); }
#define ENTRY(name, T) ENTRIES(name, false, T)
HIPVIT_FOR_DTYPES(ENTRY, layer_norm)
#define RMS_ENTRY(name, T) ENTRIES(name, true, T)
HIPVIT_FOR_DTYPES(RMS_ENTRY, rms_norm)
