// Geometry of the kernels that update weights and states (accumulate, adamw, adamw_bf16, lamb, lion, moving_average, sgd): a block updates OPTIMIZER_ELEMENTS · OPTIMIZER_THREADS
// consecutive elements, and consecutive threads update consecutive ones.
#pragma once

namespace hipvit {

/// Threads per block of the kernels that update weights and states.
constexpr unsigned OPTIMIZER_THREADS = 256;
/// Elements that a thread of these kernels updates.
constexpr unsigned OPTIMIZER_ELEMENTS = 4;

} // namespace hipvit
