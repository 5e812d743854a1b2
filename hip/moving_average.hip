// moving_average: moves an average in f32 towards a weight in f32.
//
// Shapes: all [elements]; factor f32 [1]. The result may alias the average.
// Alignment: any; elements of consecutive threads are consecutive.
// Arithmetic: f32.
// Geometry: optimizer.h.
#include "moving_average.h"
#include "optimizer.hpp"

using namespace hipvit;

HIPVIT_DEVICE void moving_average(const MovingAverageArgs &a) {
    const float factor = a.factor[0], moved = factor == factor ? 1.0f - a.decay : 0.0f;
    for_each_element(a.elements, [&](u64 at) {
        const float average = a.average[at];
        a.out[at] = moved == 0.0f ? average : a.decay * average + moved * a.weight[at];
    });
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(OPTIMIZER_THREADS) name##_##T(MovingAverageArgs a) { name(a); }
HIPVIT_FOR_DTYPES(ENTRY, moving_average)
