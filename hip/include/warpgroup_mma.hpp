// Matrix cores of a warpgroup: four waves of Hopper multiply their rows by a matrix in LDS (wgmma of sm_90a).
//
//   warpgroup_multiply(d, x, …)   D += X · Yᵀ of 64 rows, 16 of each wave, that Mma<T>::Y distributes, and 16 k. D is that of Mma<T>.
//
// Products of a batch run while the waves do other work. Their registers must not be accessed before wait_products.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
#pragma once
#include "async_copy.hpp"
#include "mma.hpp"

namespace hipvit {

constexpr int WARPGROUP_WAVES = 4; // that multiply together

// The alignment of a block's LDS.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int LDS_ALIGNMENT = 1024;
#else
constexpr int LDS_ALIGNMENT = VEC128_BYTES;
#endif

// Whether rows of D elements in LDS, with the layout LdsRows, are a matrix of wgmma.
template <class T, int D> HIPVIT_DEVICE constexpr bool is_warpgroup_matrix() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    return sizeof(T) == 2 && (D == 32 || D == 64);
#else
    return false;
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Makes this thread's writes to LDS visible to products after a barrier.
HIPVIT_DEVICE void publish_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Rows in LDS with the layout LdsRows<T, D>, whose XOR swizzle is that of wgmma for rows of 64 and 128 bytes.
template <class T, int D> struct WarpgroupMatrix {
    u64 descriptor;

    HIPVIT_DEVICE explicit WarpgroupMatrix(const T *rows) {
        constexpr u64 EIGHT_ROWS = 8 * D * sizeof(T), SWIZZLE = D == 64 ? 1 : 2; // of 128 or 64 bytes
        descriptor = (__cvta_generic_to_shared(rows) >> 4 & 0x3fff) | u64(1) << 16 | EIGHT_ROWS >> 4 << 32 | SWIZZLE << 62;
    }
    HIPVIT_DEVICE u64 at(int row, int column) const { return descriptor + (row * D + column) * sizeof(T) / 16; }
};

// Orders the waves' accesses to registers before the products that follow.
HIPVIT_DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a batch of products.
HIPVIT_DEVICE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the last PENDING batches are running.
template <int PENDING> HIPVIT_DEVICE void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from moving accesses to registers across this place: between products, they would make each wait for the one before.
template <class Acc> HIPVIT_DEVICE void pin(Acc &d) {
#pragma unroll
    for (int e = 0; e < int(sizeof(Acc) / sizeof(float)); ++e) asm volatile("" : "+f"(d.value[e]));
}
HIPVIT_DEVICE void pin(Vec128 &x) {
#pragma unroll
    for (int w = 0; w < 4; ++w) asm volatile("" : "+r"(x.word[w]));
}
template <class X, int N> HIPVIT_DEVICE void pin(X (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) pin(x[n]);
}

// The accumulators of 16 columns, as operands of a product.
#define HIPVIT_COLUMNS(d)                                                                                              \
    "+f"((d).value[0]), "+f"((d).value[1]), "+f"((d).value[2]), "+f"((d).value[3]), "+f"((d).value[4]), "+f"((d).value[5]), \
        "+f"((d).value[6]), "+f"((d).value[7])
#define HIPVIT_PRODUCT(TYPE, N, D, X0, X1, X2, X3, Y, ADDS, ROWS, ...)                                                 \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADDS ", 0; wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE \
                 " {" D "}, {" X0 "," X1 "," X2 "," X3 "}, " Y ", p, 1, 1, " ROWS "; }"                                \
                 : __VA_ARGS__                                                                                         \
                 : "r"(x.word[0]), "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3]), "l"(y), "r"(int(adds)), "n"(int(BY_ROWS)))
#define HIPVIT_PRODUCT_16(TYPE) \
    HIPVIT_PRODUCT(TYPE, "16", "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", "%10", "%11", "%12", "%13", "%14", HIPVIT_COLUMNS(d[0]))
#define HIPVIT_PRODUCT_32(TYPE) \
    HIPVIT_PRODUCT(TYPE, "32", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16", "%17", "%18", "%19", "%20", "%21", "%22", HIPVIT_COLUMNS(d[0]), HIPVIT_COLUMNS(d[1]))
#define HIPVIT_PRODUCT_64(TYPE) \
    HIPVIT_PRODUCT(TYPE, "64", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31", "%32", "%33", "%34", "%35", "%36", "%37", "%38", HIPVIT_COLUMNS(d[0]), HIPVIT_COLUMNS(d[1]), HIPVIT_COLUMNS(d[2]), HIPVIT_COLUMNS(d[3]))

// D = X · Yᵀ, or D += X · Yᵀ if it adds, of 16 · N columns of D and 16 k. `y` describes Y's first element. A row in LDS has the k of a column
// of D or, BY_ROWS, a k of all columns.
template <class T, bool BY_ROWS, class Acc, int N> HIPVIT_DEVICE void warpgroup_multiply(Acc (&d)[N], const Vec128 &x, u64 y, bool adds) {
    static_assert(N == 1 || N == 2 || N == 4);
    constexpr bool F16 = __is_base_of(f16, T);
    if constexpr (N == 1) {
        if constexpr (F16) HIPVIT_PRODUCT_16("f16");
        if constexpr (!F16) HIPVIT_PRODUCT_16("bf16");
    } else if constexpr (N == 2) {
        if constexpr (F16) HIPVIT_PRODUCT_32("f16");
        if constexpr (!F16) HIPVIT_PRODUCT_32("bf16");
    } else {
        if constexpr (F16) HIPVIT_PRODUCT_64("f16");
        if constexpr (!F16) HIPVIT_PRODUCT_64("bf16");
    }
}

#undef HIPVIT_PRODUCT_64
#undef HIPVIT_PRODUCT_32
#undef HIPVIT_PRODUCT_16
#undef HIPVIT_PRODUCT
#undef HIPVIT_COLUMNS

#else

// For code that is_warpgroup_matrix discards.
template <class T, int D> struct WarpgroupMatrix;
HIPVIT_DEVICE void publish_to_products() {}
HIPVIT_DEVICE void begin_products() {}
HIPVIT_DEVICE void end_products() {}
template <int PENDING> HIPVIT_DEVICE void wait_products();
template <class X> HIPVIT_DEVICE void pin(X &x);
template <class T, bool BY_ROWS, class Acc, int N> HIPVIT_DEVICE void warpgroup_multiply(Acc (&d)[N], const Vec128 &x, u64 y, bool adds);

#endif

} // namespace hipvit
