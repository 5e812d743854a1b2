// Arguments of all_reduce, and the layout of the memory that its ranks share.
#pragma once
#include "device_pointer.h"
#include "vec128.h"

namespace hipvit {

/// Threads per block of `all_reduce`.
constexpr unsigned ALL_REDUCE_THREADS = 256;

/// The most ranks.
constexpr unsigned ALL_REDUCE_RANKS = 4;

/// The most blocks of a launch. All of them have to run at once, so that there are no more than compute units.
constexpr unsigned ALL_REDUCE_BLOCKS = 128;

/// Bytes at the start of a rank's shared memory for flags; zero at first. Then come the parts that the ranks give each other.
constexpr unsigned ALL_REDUCE_HEADER = 4096;

/// Host memory that a rank's kernels and the host both access.
struct AllReduceControl {
    /// 1 + the rank that did not come in time; written by the device.
    unsigned missing;
    /// Not 0: the device is to wait no longer; written by the host.
    unsigned abort;
};

/// `all_reduce`: out = sum of all ranks' x + bias + residual.
struct AllReduceArgs {
    /// T `[rows, channels]`, this rank's part.
    DEVICE_POINTER(const void) x;
    /// T `[channels]`. May be null: 0.
    DEVICE_POINTER(const void) bias;
    /// T `[rows, channels]`. May be null: 0.
    DEVICE_POINTER(const void) residual;
    /// T `[rows, channels]`. May alias `x` or `residual`.
    DEVICE_POINTER(void) out;
    /// This rank's shared memory: `peers[rank]`.
    DEVICE_POINTER(void) own;
    /// Every rank's shared memory; those from `ranks` on are not accessed.
    DEVICE_POINTER(void) peers[ALL_REDUCE_RANKS];
    /// This rank's [`AllReduceControl`], in host memory.
    DEVICE_POINTER(void) control;
    /// Rows of all matrices.
    unsigned rows;
    /// Columns of all matrices.
    unsigned channels;
    /// This rank.
    unsigned rank;
    /// The ranks, at most `ALL_REDUCE_RANKS`.
    unsigned ranks;
    /// Blocks of the launch: the same on all ranks.
    unsigned blocks;
    /// How many vec128s of a thread the shared memory has space for.
    unsigned rounds;
    /// How long to wait for a rank, in milliseconds.
    unsigned timeout;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
