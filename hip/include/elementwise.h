// Geometry of the elementwise kernels (add, bias_activation, dequantize, patch_extract, permute_tokens, quantize_float8, swiglu,
// tokens): a thread computes one vec128 of a row of the output, or as many elements as a vec128 has.
#pragma once
#include "vec128.h"

namespace hipvit {

/// Threads per block of the elementwise kernels.
constexpr unsigned ELEMENTWISE_THREADS = 256;

} // namespace hipvit
