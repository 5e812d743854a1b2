// Arguments of l2_norm and l2_norm_part.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `l2_norm` and `l2_norm_part`.
constexpr unsigned L2_NORM_THREADS = 256;
/// Elements of a gradient whose squares a block of `l2_norm_part` adds.
constexpr unsigned L2_NORM_PART = 4096;

/// Maximum number of gradients of a launch of `l2_norm_part`.
constexpr unsigned L2_NORM_TENSORS = 32;

/// A gradient of `l2_norm_part`.
struct L2NormTensor {
    /// T or f32 `[elements]`.
    DEVICE_POINTER(const void) x;
    /// Number of elements.
    unsigned elements;
    /// First part of the gradient, which is a block of the grid. Ascending.
    unsigned first_part;
};

/// `l2_norm_part`: the sum of the squares of each L2_NORM_PART elements of several gradients.
struct L2NormPartArgs {
    /// The gradients, of which the first `count` are used.
    L2NormTensor tensors[L2_NORM_TENSORS];
    /// f32, one for each part of all gradients.
    DEVICE_POINTER(float) out;
    /// Number of gradients, at least 1.
    unsigned count;
    /// 1 if the gradients are in f32 for any T.
    unsigned f32_gradient;
};

/// `l2_norm`: norm = scale · √(Σ parts); factor = scale · min(1, maximum / (norm + epsilon)), or NaN with the norm.
struct L2NormArgs {
    /// f32 `[parts]`.
    DEVICE_POINTER(const float) sums;
    /// f32 `[1]`.
    DEVICE_POINTER(const float) scale;
    /// f32 `[1]`.
    DEVICE_POINTER(float) norm;
    /// f32 `[1]`.
    DEVICE_POINTER(float) factor;
    /// Number of parts.
    unsigned parts;
    /// Maximum of the norm; infinite without one.
    float maximum;
    /// Added to the norm.
    float epsilon;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
