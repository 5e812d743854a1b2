// What the functions of a generated pattern call: operators op_<name> of int, float and bool, and captured tensors. Integers wrap, and
// divide as Python's.
#pragma once
#include "attention_pattern.h"
#include "elementwise/functions.hpp"
#include "online_softmax.hpp"

namespace hipvit {

HIPVIT_DEVICE int op_add(int x, int y) { return int(u32(x) + u32(y)); }
HIPVIT_DEVICE int op_sub(int x, int y) { return int(u32(x) - u32(y)); }
HIPVIT_DEVICE int op_mul(int x, int y) { return int(u32(x) * u32(y)); }
HIPVIT_DEVICE int op_min(int x, int y) { return y < x ? y : x; }
HIPVIT_DEVICE int op_max(int x, int y) { return x < y ? y : x; }
HIPVIT_DEVICE int op_neg(int x) { return int(0u - u32(x)); }
HIPVIT_DEVICE int op_abs(int x) { return x < 0 ? op_neg(x) : x; }
HIPVIT_DEVICE int op_floor_div(int x, int y) {
    if (y == 0 || (y == -1 && u32(x) == 0x80000000u)) return 0;
    const int quotient = x / y;
    return quotient - int(quotient * y != x && (x < 0) != (y < 0));
}
HIPVIT_DEVICE int op_mod(int x, int y) { return y == 0 ? 0 : op_sub(x, op_mul(y, op_floor_div(x, y))); }
HIPVIT_DEVICE float op_to_float(int x) { return float(x); }

HIPVIT_DEVICE float op_add(float x, float y) { return x + y; }
HIPVIT_DEVICE float op_sub(float x, float y) { return x - y; }
HIPVIT_DEVICE float op_mul(float x, float y) { return x * y; }
HIPVIT_DEVICE float op_min(float x, float y) { return smaller(x, y); }
HIPVIT_DEVICE float op_max(float x, float y) { return larger(x, y); }
HIPVIT_DEVICE float op_neg(float x) { return -x; }
HIPVIT_DEVICE float op_abs(float x) { return absolute(x); }
HIPVIT_DEVICE float op_div(float x, float y) { return quotient(x, y); }
HIPVIT_DEVICE float op_exp(float x) { return exponential(x); }
HIPVIT_DEVICE float op_log(float x) { return LN_2 * fast_log2(x); }
HIPVIT_DEVICE float op_sqrt(float x) { return square_root(x); }
// 1 − 2 / (e^(2x) + 1), whose absolute error is some ULP of 1.
HIPVIT_DEVICE float op_tanh(float x) {
    return multiply_add(-2.0f, fast_reciprocal(fast_exp2(x * (2.0f * LOG2_E)) + 1.0f), 1.0f);
}

HIPVIT_DEVICE float op_pow(float x, float y) { return fn_pow(x, y); }
HIPVIT_DEVICE float op_remainder(float x, float y) { return fn_remainder(x, y); }
HIPVIT_DEVICE float op_exp_m1(float x) { return fn_exp_m1(x); }
HIPVIT_DEVICE float op_log_1p(float x) { return fn_log_1p(x); }
HIPVIT_DEVICE float op_sin(float x) { return fn_sin(x); }
HIPVIT_DEVICE float op_cos(float x) { return fn_cos(x); }
HIPVIT_DEVICE float op_atan(float x) { return fn_atan(x); }
HIPVIT_DEVICE float op_erf(float x) { return fn_erf(x); }
HIPVIT_DEVICE float op_sigmoid(float x) { return fn_sigmoid(x); }
HIPVIT_DEVICE float op_gelu(float x) { return fn_gelu(x); }
HIPVIT_DEVICE float op_floor(float x) { return fn_floor(x); }
HIPVIT_DEVICE float op_ceil(float x) { return fn_ceil(x); }
HIPVIT_DEVICE float op_trunc(float x) { return fn_trunc(x); }
HIPVIT_DEVICE float op_round(float x) { return fn_round(x); }

template <class N> HIPVIT_DEVICE bool op_less(N x, N y) { return x < y; }
template <class N> HIPVIT_DEVICE bool op_less_equal(N x, N y) { return x <= y; }
template <class N> HIPVIT_DEVICE bool op_equal(N x, N y) { return x == y; }
HIPVIT_DEVICE bool op_and(bool x, bool y) { return x && y; }
HIPVIT_DEVICE bool op_or(bool x, bool y) { return x || y; }
HIPVIT_DEVICE bool op_not(bool x) { return !x; }
template <class V> HIPVIT_DEVICE V op_select(bool condition, V x, V y) { return condition ? x : y; }

// Captured tensors, scalars and extents of a block's image and head.
template <class T> struct PatternInputs {
    const AttentionPattern &a;
    const u32 image, head;

    HIPVIT_DEVICE PatternInputs(const AttentionPattern &a, u32 image, u32 head) : a(a), image(image), head(head) {}

    static HIPVIT_DEVICE u32 clamped(int index, u32 extent) {
        return index < 0 ? 0 : u32(index) < extent ? u32(index) : extent - 1;
    }
    // The element of tensor TENSOR at these indices, which are clamped to its extents.
    template <int TENSOR, class... Indices> HIPVIT_DEVICE u32 offset(Indices... indices) const {
        const int all[] = {indices...};
        u32 offset = 0;
#pragma unroll
        for (u32 i = 0; i < sizeof...(indices); ++i) {
            const u32 extent = a.extents[TENSOR][i];
            offset = offset * extent + clamped(all[i], extent);
        }
        return offset;
    }
    template <int TENSOR, class... Indices> HIPVIT_DEVICE float load_float(Indices... indices) const {
        return to_float(((const T *)a.tensors[TENSOR])[offset<TENSOR>(indices...)]);
    }
    template <int TENSOR, class... Indices> HIPVIT_DEVICE int load_int(Indices... indices) const {
        return ((const int *)a.tensors[TENSOR])[offset<TENSOR>(indices...)];
    }
};

template <class T> struct Pattern;

} // namespace hipvit
