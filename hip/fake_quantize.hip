// fake_quantize: out = scale · (q − zero), the int8 level next to x, with the levels of each row. The levels are those of quantize_int8, or
//   for weights those of crates/graph/src/int8.rs. With a gradient: out = gradient, or 0 where x is beyond the levels.
//
// Shapes: x, gradient, out T [rows, channels], row-major, any number of channels. out may alias gradient, or x if there is none.
// Alignment: any, of whole elements; vec128 access where the addresses allow it.
// Accumulator: f32. The level is exact, and its product with the scale is rounded once to f32 and once to T.
// Geometry: blocks of ROW_THREADS, a row per wave, or per block (whole_block) for long rows; a thread keeps up to ROW_REGISTERS elements of
//   its row in registers.
#include "fake_quantize.h"
#include "row.hpp"
#include "row_quantize.hpp"

using namespace hipvit;

// Levels of activations or of a weight.
struct FakeLevels : Int8Levels {
    float lowest = 0.0f;

    template <class Group> HIPVIT_DEVICE void find_all(const FakeQuantizeArgs &a, const Group &group) {
        find(a, group);
        if (a.weight == 0) return;
        // 127 levels on each side of the zero point 128.
        const float largest = larger(high, below);
        const bool is_finite = largest < infinity();
        scale = largest / 127.0f, lowest = 1.0f;
        is_zero = !is_finite || scale < SMALLEST_SCALE;
        zero = is_zero ? 0 : 128;
        if (is_zero) scale = is_finite ? 0.0f : float_of(0x7fc00000);
    }
    HIPVIT_DEVICE float rounded(float v) const {
        const float level = is_zero ? 0.0f : smaller(larger(unclamped(v), lowest), 255.0f);
        return product(level - float(zero), scale);
    }
    HIPVIT_DEVICE bool clips(float v) const {
        const float level = unclamped(v);
        return !is_zero && (level < lowest || level > 255.0f);
    }
};

template <class T> HIPVIT_DEVICE void fake_quantize(const FakeQuantizeArgs &a) {
    HIPVIT_LDS static float scratch[ROW_THREADS / WAVE];
    const RowGroup<ROW_THREADS> group{a.whole_block != 0, scratch};
    const u32 index = group.row();
    if (index >= a.rows) return; // a whole wave, or a whole block
    const u64 start = u64(index) * a.channels;
    const T *x = (const T *)a.x + start, *gradient = (const T *)a.gradient + start;
    T *out = (T *)a.out + start;

    auto load = [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
        load_vec(x + column, valid, aligned(x, VEC128_BYTES), vec);
    };
    Row<T> row(a.channels, group);
    FakeLevels levels;
    row.fill(load, [&](u32, float v) { levels.include(v); });
    levels.find_all(a, group);
    row.finish(
        load, [](u32, float &) {},
        [&](u32 column, u32 valid, float(&vec)[VEC<T>]) {
            if (a.gradient) {
                float dy[VEC<T>];
                load_vec(gradient + column, valid, aligned(gradient, VEC128_BYTES), dy);
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) vec[i] = levels.clips(vec[i]) ? 0.0f : dy[i];
            } else {
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) vec[i] = levels.rounded(vec[i]);
            }
            store_vec(out + column, valid, aligned(out, VEC128_BYTES), vec);
        });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ROW_THREADS) name##_##T(FakeQuantizeArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, fake_quantize)
