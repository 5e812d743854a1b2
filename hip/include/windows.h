// Sliding windows over images, channels last: the geometry of convolutions and pools.
#pragma once

namespace hipvit {

/// Windows of `kernel` elements, `stride` apart, over images `[images, height, width, channels]` with padding: the pixels of a result
/// `[images, rows, columns, …]`. Pairs are of the vertical and the horizontal axis.
struct WindowGeometry {
    /// Images in the batch.
    unsigned images;
    /// Rows of an image, at least 1.
    unsigned height;
    /// Columns of an image, at least 1.
    unsigned width;
    /// Channels of an image, at least 1.
    unsigned channels;
    /// Rows of the result, at least 1.
    unsigned rows;
    /// Columns of the result, at least 1.
    unsigned columns;
    /// Elements of a window, at least 1.
    unsigned kernel[2];
    /// Distance of windows, at least 1.
    unsigned stride[2];
    /// Distance of a window's elements, at least 1.
    unsigned dilation[2];
    /// Padding above and to the left.
    unsigned before[2];
};

} // namespace hipvit
