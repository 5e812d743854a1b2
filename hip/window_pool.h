// Arguments of window_pool.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"
#include "windows.h"

namespace hipvit {

/// Elements of a window that count, the `mode` of [`WindowPoolArgs`].
enum class WindowPoolMode : unsigned {
    /// The maximum of the elements in the image.
    Max,
    /// The mean of the elements in the image.
    Mean,
    /// The mean of the elements in the image and its padding.
    MeanOfPadded,
};

/// `window_pool`: maximum or mean of sliding windows.
struct WindowPoolArgs {
    /// T `[images, height, width, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[images, rows, columns, channels]`.
    DEVICE_POINTER(void) out;
    /// The windows.
    struct WindowGeometry windows;
    /// Padding below and to the right.
    unsigned after[2];
    /// One of [`WindowPoolMode`].
    unsigned mode;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
