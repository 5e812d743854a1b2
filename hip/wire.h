// Arguments of wire.
#pragma once
#include "device_pointer.h"
#include "optimizer.h"

namespace hipvit {

/// `wire`: out = x, rounded to bf16 for the way between ranks, or back in f32.
struct WireArgs {
    /// f32 `[elements]`, or bf16 if `back` is 1.
    DEVICE_POINTER(const void) x;
    /// bf16 `[elements]`, or f32 if `back` is 1. Does not overlap `x`.
    DEVICE_POINTER(void) out;
    /// Number of elements.
    unsigned elements;
    /// 1 to convert bf16 to f32, 0 to round f32 to bf16.
    unsigned back;
};

} // namespace hipvit
