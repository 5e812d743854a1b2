// l2_norm_part: the sum of the squares of each L2_NORM_PART elements of several gradients.
// l2_norm: the norm of all gradients from these sums, and the factor that clips them.
//
// Shapes: x T or f32 [elements], sums f32 [parts]; scale, norm and factor f32 [1].
// Alignment: any; vec128 access where the addresses allow it.
// Accumulator: f32. A thread, a wave and a block add in a fixed order, so that equal gradients have equal norms.
// Geometry: blocks of L2_NORM_THREADS. l2_norm_part: a part per block. l2_norm: one block.
#include "l2_norm.h"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

// The thread's part of the sum of the squares of `left` elements.
template <class T> HIPVIT_DEVICE float square_sum(const T *x, u32 left) {
    float sum = 0.0f;
    for (u32 at = thread_index() * VEC<T>; at < left; at += L2_NORM_THREADS * VEC<T>) {
        float value[VEC<T>];
        load_vec(x + at, left - at < VEC<T> ? left - at : VEC<T>, aligned(x, 16), value);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) sum += value[i] * value[i];
    }
    return sum;
}

template <class T> HIPVIT_DEVICE void l2_norm_part(const L2NormPartArgs &a) {
    HIPVIT_LDS static float scratch[L2_NORM_THREADS / WAVE];
    const RowGroup<L2_NORM_THREADS> group{true, scratch};
    u32 index = 0;
    while (index + 1 < a.count && block_index() >= a.tensors[index + 1].first_part) ++index;
    const L2NormTensor &t = a.tensors[index];
    const u64 start = u64(block_index() - t.first_part) * L2_NORM_PART;
    const u32 left = u32(t.elements - start < L2_NORM_PART ? t.elements - start : L2_NORM_PART);
    float sum = a.f32_gradient ? square_sum((const float *)t.x + start, left) : square_sum((const T *)t.x + start, left);
    sum = group.template reduce<Sum>(sum);
    if (thread_index() == 0) a.out[block_index()] = sum;
}

template <class T> HIPVIT_DEVICE void l2_norm(const L2NormArgs &a) {
    HIPVIT_LDS static float scratch[L2_NORM_THREADS / WAVE];
    const RowGroup<L2_NORM_THREADS> group{true, scratch};
    float sum = 0.0f;
    for (u32 i = thread_index(); i < a.parts; i += L2_NORM_THREADS) sum += a.sums[i];
    sum = group.template reduce<Sum>(sum);
    if (thread_index() != 0) return;
    const float scale = a.scale[0], norm = scale * square_root(sum), clipped = a.maximum / (norm + a.epsilon);
    a.norm[0] = norm;
    const bool is_finite = norm <= 3.402823466e38f;
    a.factor[0] = !is_finite ? 0.0f * norm /* NaN */ : clipped < 1.0f ? scale * clipped : scale;
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(L2_NORM_THREADS) name##_##T(L2NormArgs a) { name<T>(a); }                                            \
    HIPVIT_KERNEL(L2_NORM_THREADS) name##_part_##T(L2NormPartArgs a) { name##_part<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, l2_norm)
