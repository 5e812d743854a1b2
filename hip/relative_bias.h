// Arguments of relative_bias.
#pragma once
#include "device_pointer.h"
#include "relative.h"

namespace hipvit {

/// `relative_bias`: the bias of each pair of a query and a key, from a table with a row for each distance.
struct RelativeBiasArgs {
    /// T `[distances, heads]`.
    DEVICE_POINTER(const void) table;
    /// T `[kinds, heads, tokens, tokens]`.
    DEVICE_POINTER(void) out;
    /// The tokens.
    RelativeGrid grid;
};

} // namespace hipvit
