// Geometry of the kernels that reduce over rows: a row per wave, or a row per block.
#pragma once

namespace hipvit {

/// Threads per block of the row kernels.
constexpr unsigned ROW_THREADS = 256;
/// Elements of a row that a thread keeps in registers, unless the kernel says otherwise. The rest of a longer row is loaded again in each
/// pass over it.
constexpr unsigned ROW_REGISTERS = 32;

} // namespace hipvit
