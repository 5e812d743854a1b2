// The unit of vectorised memory access.
#pragma once

namespace hipvit {

/// Bytes of a vec128, the widest load and store of a thread.
constexpr unsigned VEC128_BYTES = 16;

} // namespace hipvit
