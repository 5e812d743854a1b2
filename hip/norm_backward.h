// Arguments and geometry of norm_backward.
#pragma once
#include "device_pointer.h"
#include "row.h"

namespace hipvit {

/// Threads per block of the entries that take a row with a wave.
constexpr unsigned NORM_BACKWARD_THREADS = 128;
/// Maximum number of channels: a block of ROW_THREADS threads keeps a row and the sums of its columns in registers.
constexpr unsigned NORM_BACKWARD_CHANNELS = ROW_THREADS * ROW_REGISTERS;
/// Maximum number of blocks. Each block writes a row of partial sums for the gradients of weight and bias. For 50,432 rows in bf16, they
/// are 8 % of the bytes of x, dy and dx.
constexpr unsigned NORM_BACKWARD_BLOCKS = 1024;

/// `layer_norm_backward` and `rms_norm_backward`: the gradient of the normalised rows, and partial sums of those of weight and bias.
struct NormBackwardArgs {
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[channels]`.
    DEVICE_POINTER(const void) weight;
    /// T `[rows, channels]`.
    DEVICE_POINTER(const void) dy;
    /// T `[rows, channels]`: added to dx. May be null.
    DEVICE_POINTER(const void) residual;
    /// T `[rows, channels]`. May alias `x`, `dy` or `residual`.
    DEVICE_POINTER(void) dx;
    /// f32 `[blocks, channels]`: partial sums of the gradient of the weight. May be null.
    DEVICE_POINTER(float) dweight;
    /// f32 `[blocks, channels]`: partial sums of the gradient of the bias. May be null.
    DEVICE_POINTER(float) dbias;
    /// f32 `[blocks, channels]`: partial sums of the columns of dx, before dx is rounded. May be null. The host selects the entry by it.
    DEVICE_POINTER(float) sums;
    /// Rows of x, dy and dx.
    unsigned rows;
    /// Channels of a row, at most [`NORM_BACKWARD_CHANNELS`].
    unsigned channels;
    /// Blocks of the grid.
    unsigned blocks;
    /// Added to the variance, or to the mean square.
    float epsilon;
    /// 1: the deviation, or the root, is a constant.
    unsigned fixed;
    /// 1: RMS norm. The host selects the entry by it.
    unsigned rms;
};

} // namespace hipvit
