// wire: rounds f32 to the nearest bf16, or converts bf16 to f32, whatever the dtype of the other kernels.
//
// Shapes: all [elements].
// Alignment: any, of whole elements; elements of consecutive threads are consecutive.
// Arithmetic: rounding to nearest, ties to even.
// Geometry: optimizer.h.
#include "wire.h"
#include "optimizer.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void wire(const WireArgs &a) {
    for_each_element(a.elements, [&](u64 at) {
        if (a.back != 0) {
            ((float *)a.out)[at] = to_float(((const bf16 *)a.x)[at]);
        } else {
            ((bf16 *)a.out)[at] = from_float<bf16>(((const float *)a.x)[at]);
        }
    });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_##T(WireArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, wire)
