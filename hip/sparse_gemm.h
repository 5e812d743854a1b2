// Arguments of sparse_gemm, and the layout of its weight.
#pragma once
#include "activation.h"
#include "device_pointer.h"

namespace hipvit {

/// Rows and channels of a block's tile.
constexpr unsigned SPARSE_GEMM_TILE = 128;
/// Threads per block.
constexpr unsigned SPARSE_GEMM_THREADS = 256;
/// Channels and inner extent of a block of indices.
constexpr unsigned SPARSE_INDEX_CHANNELS = 16, SPARSE_INDEX_DEPTH = 64;
/// Bytes of a block of indices.
constexpr unsigned SPARSE_INDEX_BYTES = 128;

/// `sparse_gemm`: out = activation(x · weightᵀ + bias) + residual. The weight is 2:4 sparse: along the inner extent, two of each four
/// elements are kept and the others are 0.
struct SparseGemmArgs {
    /// T `[rows, inner]`.
    DEVICE_POINTER(const void) x;
    /// T `[channels, inner / 2]`: the kept elements of the weight, in order.
    DEVICE_POINTER(const void) values;
    /// Bytes `[⌈channels / 16⌉, ⌈inner / 64⌉, 128]`. Each four of the weight has 4 bits: the place of its first kept element in the lower
    /// 2 bits, that of its second in the upper 2. They are 4 beyond the last channel or inner element. A block of 128 bytes is for 16
    /// channels c and an inner extent of 64, in the order of the matrix cores' lanes:
    ///
    /// - SMFMAC, 64 lanes: 16 bits each, for c = lane % 16 the fours at 8 · (lane / 16) + {0, 4, 32, 36};
    /// - mma.sp, 32 lanes: 32 bits each, for c = lane / 4 and then c + 8 the fours at 16 · (lane % 4) + {0, 4, 8, 12}.
    DEVICE_POINTER(const void) indices;
    /// T `[channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[rows, channels]`. May alias `residual`.
    DEVICE_POINTER(void) out;
    /// Rows of x.
    unsigned rows;
    /// Rows of the weight.
    unsigned channels;
    /// Columns of x and the weight, a multiple of 4.
    unsigned inner;
    /// One of [`ActivationCode`].
    unsigned activation;
};

} // namespace hipvit
