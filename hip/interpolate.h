// Arguments of interpolate.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// Function between pixels, the `kernel` of [`InterpolateArgs`].
enum class InterpolateKernel : unsigned {
    /// The nearest pixel, a half down.
    NearestPreferFloor,
    /// The nearest pixel, a half up.
    NearestPreferCeil,
    /// The pixel at the position, rounded down.
    NearestFloor,
    /// The pixel at the position, rounded up.
    NearestCeil,
    /// Linear.
    Linear,
    /// Cubic convolution.
    Cubic,
};

/// Positions along an axis: pixel i is at `(i + shift) · numerator / denominator − shift + offset` of x.
struct InterpolateAxis {
    /// See [`InterpolateAxis`].
    float shift;
    /// See [`InterpolateAxis`].
    float numerator;
    /// See [`InterpolateAxis`].
    float denominator;
    /// See [`InterpolateAxis`].
    float offset;
    /// Factor of the width of the kernel, at least 1.
    float stretch;
};

/// `interpolate`: images in another size.
struct InterpolateArgs {
    /// T `[images, height, width, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[images, rows, columns, channels]`.
    DEVICE_POINTER(void) out;
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
    /// Positions along height and width.
    struct InterpolateAxis axes[2];
    /// One of [`InterpolateKernel`].
    unsigned kernel;
    /// Coefficient of a cubic kernel.
    float coefficient;
    /// 1: weights are divided by their sum.
    unsigned normalize;
    /// 1: pixels outside of x have no weight. 0: they are those at the edge.
    unsigned exclude_outside;
};

} // namespace hipvit
