// Arguments of max_pool_backward.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"
#include "windows.h"

namespace hipvit {

/// `max_pool_backward`: gradients of the largest elements of sliding windows.
struct MaxPoolBackwardArgs {
    /// T `[images, height, width, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[images, rows, columns, channels]`.
    DEVICE_POINTER(const void) dy;
    /// T `[images, height, width, channels]`.
    DEVICE_POINTER(void) dx;
    /// The windows.
    struct WindowGeometry windows;
};

} // namespace hipvit
