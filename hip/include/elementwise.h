// Geometry of the elementwise kernels (add, bias_activation, patch_extract, swiglu, tokens): a thread computes one
// vec128 of a row of the output.
#pragma once
#include "vec128.h"

namespace hipvit {

/// Threads per block of the elementwise kernels.
constexpr unsigned ELEMENTWISE_THREADS = 256;

} // namespace hipvit
