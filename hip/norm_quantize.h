// Arguments of the kernels in norm_quantize.hip.
#pragma once
#include "layer_norm.h"
#include "quantize.h"

namespace hipvit {

/// `layer_norm_float8_rows`, `layer_norm_int8`, `rms_norm_float8_rows`, `rms_norm_int8`, each also with `_wide`: a norm whose result is
/// rounded to 8 bits. The bits are those of `layer_norm` or `rms_norm` followed by `quantize_float8_rows` or `quantize_int8`.
struct NormQuantizeArgs {
    /// Arguments of the norm. `residual`, `sum` and `out` are null.
    LayerNormArgs norm;
    /// Arguments of the rounding, of the norm's result rounded to T. `x` is null; `whole_block` is unused.
    QuantizeArgs quantize;
};

} // namespace hipvit
