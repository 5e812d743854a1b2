// Arguments and geometry of the convolutions.
#pragma once
#include "activation.h"
#include "device_pointer.h"
#include "elementwise.h"
#include "windows.h"

namespace hipvit {

/// `conv_patches`: windows as rows of a matrix, for each group of channels.
struct ConvPatchesArgs {
    /// T `[images, height, width, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[groups, images · rows · columns, kernel[0] · kernel[1] · channels / groups]`.
    DEVICE_POINTER(void) out;
    /// The windows.
    struct WindowGeometry windows;
    /// Groups of channels, at least 1.
    unsigned groups;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

/// `direct_conv`: out = activation(x ∗ weight + bias) + residual for groups of channels, or the transposed convolution.
struct DirectConvArgs {
    /// T `[images, height, width, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[features, kernel[0], kernel[1], channels / groups]`.
    DEVICE_POINTER(const void) weight;
    /// T `[features]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[images, rows, columns, features]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[images, rows, columns, features]`. May alias `residual`.
    DEVICE_POINTER(void) out;
    /// The windows.
    struct WindowGeometry windows;
    /// Channels of the result, at least 1.
    unsigned features;
    /// Groups of channels, at least 1.
    unsigned groups;
    /// One of [`ActivationCode`].
    unsigned activation;
    /// 1: the transposed convolution.
    unsigned transposed;
};

/// `conv_transpose_sum`: the sums of the products of a transposed convolution: out = Σ products + bias.
struct ConvTransposeSumArgs {
    /// T `[images · height · width, features, kernel[0] · kernel[1]]`: each pixel of x times the weight.
    DEVICE_POINTER(const void) products;
    /// T `[features]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[images, rows, columns, features]`.
    DEVICE_POINTER(void) out;
    /// The windows, of images of `features` channels.
    struct WindowGeometry windows;
};

} // namespace hipvit
