// Geometry of the elementwise kernels (activation_backward, add, bias_activation, dequantize, mul, patch_extract, patch_extract_backward,
// permute_tokens, quantize_float8, swiglu, swiglu_backward, tokens): a thread computes one vec128 of a row of the output, or as many
// elements as a vec128 has.
#pragma once
#include "vec128.h"

namespace hipvit {

/// Threads per block of the elementwise kernels.
constexpr unsigned ELEMENTWISE_THREADS = 256;

} // namespace hipvit
