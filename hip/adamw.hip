// adamw: a step of AdamW on several tensors, of f32 weights and moments, with gradients in T or f32.
//
// Shapes: of a tensor all [elements]; rates f32 [3], factor f32 [1]. Results may alias the operands that they replace.
// Alignment: any; ADAMW_VEC elements at once where the addresses of the tensor allow it.
// Arithmetic: f32.
// Geometry: blocks of OPTIMIZER_THREADS, each with ADAMW_ELEMENTS consecutive elements of one tensor.
#include "adamw.h"
#include "optimizer.hpp"
#include "vec128.hpp"

using namespace hipvit;

// ADAMW_VEC elements of U.
template <class U> union Few {
    struct alignas(ADAMW_VEC * sizeof(U)) {
        u32 word[ADAMW_VEC * sizeof(U) / 4];
    } whole;
    U element[ADAMW_VEC];
};

template <class U> HIPVIT_DEVICE void load_few(const void *from, u64 at, u32 valid, bool vector, float (&x)[ADAMW_VEC]) {
    const U *const first = (const U *)from + at;
    Few<U> few;
    if (vector && valid >= ADAMW_VEC) {
        few.whole = *reinterpret_cast<const decltype(few.whole) *>(first);
#pragma unroll
        for (u32 i = 0; i < ADAMW_VEC; ++i) x[i] = to_float(few.element[i]);
    } else {
#pragma unroll
        for (u32 i = 0; i < ADAMW_VEC; ++i) x[i] = i < valid ? to_float(first[i]) : 0.0f;
    }
}

template <class U> HIPVIT_DEVICE void store_few(void *to, u64 at, u32 valid, bool vector, const float (&x)[ADAMW_VEC]) {
    U *const first = (U *)to + at;
    Few<U> few;
#pragma unroll
    for (u32 i = 0; i < ADAMW_VEC; ++i) few.element[i] = from_float<U>(x[i]);
    if (vector && valid >= ADAMW_VEC) {
        *reinterpret_cast<decltype(few.whole) *>(first) = few.whole;
    } else {
#pragma unroll
        for (u32 i = 0; i < ADAMW_VEC; ++i)
            if (i < valid) first[i] = few.element[i];
    }
}

template <class T> HIPVIT_DEVICE void adamw(const AdamWArgs &a) {
    u32 index = 0;
    while (index + 1 < a.count && block_index() >= a.tensors[index + 1].first_block) ++index;
    const AdamWTensor &t = a.tensors[index];
    const u64 single = (u64)t.weight | (u64)t.first | (u64)t.second | (u64)t.new_weight | (u64)t.new_first | (u64)t.new_second;
    const u64 narrow = (u64)t.gradient | (u64)t.rounded;
    const bool vector = single % (4 * ADAMW_VEC) == 0 && narrow % (a.f32_gradient ? 4 * ADAMW_VEC : sizeof(T) * ADAMW_VEC) == 0;
    const float rate = a.rates[0] * a.rate_factor, kept = 1.0f - rate * a.weight_decay;
    const float step = rate / a.rates[1], root = square_root(a.rates[2]), factor = a.factor[0];
    const u64 start = u64(block_index() - t.first_block) * ADAMW_ELEMENTS + thread_index() * ADAMW_VEC;
#pragma unroll
    for (u32 k = 0; k < OPTIMIZER_ELEMENTS; ++k) {
        const u64 at = start + k * (OPTIMIZER_THREADS * ADAMW_VEC);
        if (at >= t.elements) return;
        const u32 valid = t.elements - at < ADAMW_VEC ? u32(t.elements - at) : ADAMW_VEC;
        float weight[ADAMW_VEC], gradient[ADAMW_VEC], first[ADAMW_VEC], second[ADAMW_VEC];
        load_few<float>(t.weight, at, valid, vector, weight);
        load_few<float>(t.first, at, valid, vector, first);
        load_few<float>(t.second, at, valid, vector, second);
        if (a.f32_gradient) {
            load_few<float>(t.gradient, at, valid, vector, gradient);
        } else {
            load_few<T>(t.gradient, at, valid, vector, gradient);
        }
        if (factor == factor) {
#pragma unroll
            for (u32 i = 0; i < ADAMW_VEC; ++i) {
                const float g = gradient[i] * factor;
                float &m = first[i], &v = second[i];
                m += (g - m) * (1.0f - a.beta1);
                v = v * a.beta2 + g * g * (1.0f - a.beta2);
                weight[i] = weight[i] * kept - step * m / (square_root(v) / root + a.epsilon);
            }
        }
        store_few<float>(t.new_weight, at, valid, vector, weight);
        store_few<float>(t.new_first, at, valid, vector, first);
        store_few<float>(t.new_second, at, valid, vector, second);
        if (t.rounded) store_few<T>(t.rounded, at, valid, vector, weight);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_##T(AdamWArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, adamw)
