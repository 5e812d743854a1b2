// Arguments of all_reduce and all_reduce_norm, and the layout of the memory that its ranks share.
#pragma once
#include "device_pointer.h"
#include "vec128.h"

namespace hipvit {

/// Threads per block of `all_reduce`.
constexpr unsigned ALL_REDUCE_THREADS = 256;

/// Threads per block of `all_reduce_norm`. Each row takes whole waves: 4 rows of 1,024 channels in 16 bits, 3 of 1,152 or 1,280.
constexpr unsigned ALL_REDUCE_NORM_THREADS = 512;

/// Maximum number of ranks.
constexpr unsigned ALL_REDUCE_RANKS = 4;

/// Maximum number of blocks of a launch. All of them run at once, so a launch has at most as many as compute units.
constexpr unsigned ALL_REDUCE_BLOCKS = 128;

/// Bytes of flags at the start of a rank's shared memory, initially zero. The parts that the ranks exchange follow.
constexpr unsigned ALL_REDUCE_HEADER = 4096;

/// Host memory that a rank's kernels and the host access.
struct AllReduceControl {
    /// 1 + the rank that timed out; written by the device.
    unsigned missing;
    /// Not 0: the device stops waiting; written by the host.
    unsigned abort;
};

/// `all_reduce`: out = sum of all ranks' x + bias + residual.
///
/// `all_reduce_norm` also computes norm_out = (out − mean(out)) / √(variance(out) + epsilon) · norm_weight + norm_bias over each row, with
/// the biased variance. Without norm_bias it is out / √(mean(out²) + epsilon) · norm_weight.
struct AllReduceArgs {
    /// T `[rows, channels]`, this rank's summand.
    DEVICE_POINTER(const void) x;
    /// T `[channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[rows, channels]`. May alias `x` or `residual`.
    DEVICE_POINTER(void) out;
    /// This rank's shared memory: `peers[rank]`.
    DEVICE_POINTER(void) own;
    /// Shared memory of every rank. Entries from `ranks` on are not accessed.
    DEVICE_POINTER(void) peers[ALL_REDUCE_RANKS];
    /// This rank's [`AllReduceControl`], in host memory.
    DEVICE_POINTER(void) control;
    /// T `[channels]`. Null for `all_reduce` only.
    DEVICE_POINTER(const void) norm_weight;
    /// T `[channels]`. Null for `all_reduce` and for an RMS norm.
    DEVICE_POINTER(const void) norm_bias;
    /// T `[rows, channels]`. May alias `x` or `residual`. Null for `all_reduce` only.
    DEVICE_POINTER(void) norm_out;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// This rank.
    unsigned rank;
    /// Number of ranks, at most `ALL_REDUCE_RANKS`.
    unsigned ranks;
    /// Blocks of the launch, the same number on all ranks.
    unsigned blocks;
    /// Capacity of the shared memory: vec128s per each of ALL_REDUCE_THREADS threads.
    unsigned rounds;
    /// Time-out of waiting for a rank, in milliseconds.
    unsigned timeout;
    /// Added to the variance, or to the mean square.
    float epsilon;
};

} // namespace hipvit
