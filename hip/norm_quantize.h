// Arguments of the kernels in norm_quantize.hip.
#pragma once
#include "layer_norm.h"
#include "quantize.h"

namespace hipvit {

/// `layer_norm_float8_rows`, `layer_norm_int8`, `rms_norm_float8_rows`, `rms_norm_int8`, and the same with `_wide`: what `quantize_…` makes
/// of the result of `layer_norm` or `rms_norm`, to the bit, without the result in between.
struct NormQuantizeArgs {
    /// Of the norm. `residual`, `sum` and `out` are null.
    LayerNormArgs norm;
    /// Of the rounding of rows. `x` is null, for the norm's result, which was rounded to T; `whole_block` is unused.
    QuantizeArgs quantize;
};

} // namespace hipvit
