// group_norm: normalises groups of channels over all pixels of an image. With a group per channel, this is an instance norm.
//
// Shapes: x, out T [images, pixels, channels]; weight, bias T [channels]. All row-major.
// Alignment: any.
// Accumulator: f32. First the mean, then the squares of the centred values: mean(x²) − mean(x)² would cancel.
// Geometry: blocks of GROUP_NORM_THREADS, a group of an image each. Consecutive threads read consecutive channels of the group, and blocks
//   of neighbouring groups share cache lines.
#include "group_norm.h"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void group_norm(const GroupNormArgs &a) {
    HIPVIT_LDS static float scratch[GROUP_NORM_THREADS / WAVE];
    const RowGroup<GROUP_NORM_THREADS> block{true, scratch};
    const u32 image = block_index() / a.groups, group = block_index() % a.groups;
    if (image >= a.images) return; // the whole block
    const u32 width = a.channels / a.groups;
    const u64 length = u64(a.pixels) * width;
    const u64 start = u64(image) * a.pixels * a.channels + group * width;
    const T *x = (const T *)a.x + start;
    // Calls each(index from x, channel of the group).
    auto for_each = [&](const auto &each) {
        for (u64 i = thread_index(); i < length; i += GROUP_NORM_THREADS) {
            const u64 pixel = divide(i, width);
            const u32 channel = u32(i - pixel * width);
            each(pixel * a.channels + channel, channel);
        }
    };
    float total = 0.0f;
    for_each([&](u64 at, u32) { total += to_float(x[at]); });
    const float mean = block.template reduce<Sum>(total) / float(length);
    float squares = 0.0f;
    for_each([&](u64 at, u32) {
        const float v = to_float(x[at]) - mean;
        squares = multiply_add(v, v, squares);
    });
    const float variance = block.template reduce<Sum>(squares) / float(length);
    const float inverse = 1.0f / square_root(variance + a.epsilon);
    const T *weight = (const T *)a.weight + group * width, *bias = (const T *)a.bias + group * width;
    T *out = (T *)a.out + start;
    for_each([&](u64 at, u32 channel) {
        const float normal = (to_float(x[at]) - mean) * inverse;
        out[at] = from_float<T>(multiply_add(normal, to_float(weight[channel]), to_float(bias[channel])));
    });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(GROUP_NORM_THREADS) name##_##T(GroupNormArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, group_norm)
