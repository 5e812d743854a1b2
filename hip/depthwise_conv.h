// Arguments and geometry of the depthwise convolutions.
#pragma once
#include "activation.h"
#include "device_pointer.h"
#include "elementwise.h"
#include "windows.h"

namespace hipvit {

/// Vec128s of channels per block of `depthwise_conv`.
constexpr unsigned DEPTHWISE_VECS = 8;
/// Adjacent pixels per thread of `depthwise_conv`.
constexpr unsigned DEPTHWISE_COLUMNS = 4;
/// Maximum elements of a kernel of `depthwise_conv`, whose weights are in LDS.
constexpr unsigned DEPTHWISE_TAPS = 49;

/// Threads per block of the depthwise kernels of one size.
constexpr unsigned DEPTHWISE_TILE_THREADS = 128;
/// Words of 32 bits of channels per block of the depthwise kernels of one size.
constexpr unsigned DEPTHWISE_TILE_WORDS = 16;
/// Adjacent pixels of a row per thread of `depthwise_conv_*_wide`.
constexpr unsigned DEPTHWISE_WIDE_COLUMNS = 7;
/// Adjacent pixels of a row per thread of `depthwise_conv_*_narrow` and `depthwise_conv_*_strided`.
constexpr unsigned DEPTHWISE_NARROW_COLUMNS = 4;
/// Adjacent rows per thread of `depthwise_conv_*_wide` and `depthwise_conv_*_narrow`.
constexpr unsigned DEPTHWISE_ROWS = 2;

/// `depthwise_conv` and the kernels of one size: out = activation(x ∗ weight + bias) + residual for each channel.
struct DepthwiseConvArgs {
    /// T `[images, height, width, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[channels, kernel[0], kernel[1]]`.
    DEVICE_POINTER(const void) weight;
    /// T `[channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[images, rows, columns, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[images, rows, columns, channels]`. May alias `residual`.
    DEVICE_POINTER(void) out;
    /// The windows, of at most [`DEPTHWISE_TAPS`] elements.
    struct WindowGeometry windows;
    /// One of [`ActivationCode`].
    unsigned activation;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
