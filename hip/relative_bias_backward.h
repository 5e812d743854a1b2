// Arguments of relative_bias_backward.
#pragma once
#include "device_pointer.h"
#include "relative.h"

namespace hipvit {

/// `relative_bias_backward`: the gradient of a table, the sum over the pairs of a query and a key with each distance.
struct RelativeBiasBackwardArgs {
    /// T `[kinds, heads, tokens, tokens]`.
    DEVICE_POINTER(const void) gradient;
    /// T `[distances, heads]`.
    DEVICE_POINTER(void) out;
    /// The tokens.
    RelativeGrid grid;
};

} // namespace hipvit
