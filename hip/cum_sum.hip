// cum_sum: running sums along an axis.
//
// Shapes: x, out T, f32 or i32 [outer, length, inner], row-major.
// Alignment: any.
// Accumulator: f32, or i32 for integers. Sums are in order.
// Geometry: blocks of CUM_SUM_THREADS, a row of the axis per thread.
#include "cum_sum.h"
#include "vec128.hpp"

using namespace hipvit;

template <class E, class Sum, class Read, class Write>
HIPVIT_DEVICE void sums(const CumSumArgs &a, const Read &read, const Write &write) {
    const u64 index = u64(block_index()) * CUM_SUM_THREADS + thread_index();
    const u64 outer = divide(index, a.inner), column = index - outer * a.inner;
    if (outer >= a.outer) return;
    const u64 start = outer * a.length * a.inner + column;
    const E *x = (const E *)a.x + start;
    E *out = (E *)a.out + start;
    Sum sum = 0;
    for (u32 step = 0; step < a.length; ++step) {
        const u64 at = u64(a.reverse ? a.length - 1 - step : step) * a.inner;
        const Sum before = sum;
        sum += read(x[at]);
        out[at] = write(a.exclusive ? before : sum);
    }
}

template <class T> HIPVIT_DEVICE void cum_sum(const CumSumArgs &a) {
    if (a.kind == 2) {
        // Unsigned, so that overflow wraps.
        sums<u32, u32>(a, [](u32 x) { return x; }, [](u32 x) { return x; });
    } else if (a.kind == 1) {
        sums<float, float>(a, [](float x) { return x; }, [](float x) { return x; });
    } else {
        sums<T, float>(a, [](T x) { return to_float(x); }, [](float x) { return from_float<T>(x); });
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(CUM_SUM_THREADS) name##_##T(CumSumArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, cum_sum)
