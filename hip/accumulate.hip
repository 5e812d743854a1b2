// accumulate: adds a gradient in T to a sum in f32, or starts the sum if keep is 0.
//
// Shapes: all [elements]; keep f32 [1]. The result may alias the sum.
// Alignment: any; f32 elements of consecutive threads are consecutive.
// Arithmetic: f32. With keep = 0, NaN and infinity in the sum have no effect.
// Geometry: optimizer.h.
#include "accumulate.h"
#include "optimizer.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void accumulate(const AccumulateArgs &a) {
    const float keep = a.keep[0];
    for_each_element(a.elements, [&](u64 at) {
        const float gradient = to_float(((const T *)a.gradient)[at]);
        a.out[at] = keep == 0.0f ? gradient : keep * a.sum[at] + gradient;
    });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_##T(AccumulateArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, accumulate)
