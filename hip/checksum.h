// Arguments and geometry of checksum.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block.
constexpr unsigned CHECKSUM_THREADS = 256;
/// Words of 32 bits per block.
constexpr unsigned CHECKSUM_PART = 16384;

/// `checksum`: adds the checksum of a buffer to a number.
struct ChecksumArgs {
    /// Words of 32 bits. The last is extended by zeros.
    DEVICE_POINTER(const void) from;
    /// A number of 64 bits.
    DEVICE_POINTER(unsigned long long) out;
    /// Size of the buffer.
    unsigned long long bytes;
};

} // namespace hipvit
