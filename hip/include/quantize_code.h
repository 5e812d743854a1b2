// Rounding to 8 bits by quantize and norm_quantize.
#pragma once

namespace hipvit {

/// Rounding of x to 8 bits.
enum class QuantizeCode : unsigned {
    /// E4M3 of x · `factor`.
    Float8,
    /// E4M3 of x / (each row's largest magnitude / 448).
    Float8Rows,
    /// 256 levels over each row's range, extended to 0.
    Range,
    /// 256 levels over ± each row's largest magnitude.
    Magnitude,
    /// The levels `factor` · (q − `zero`), q from 0 to 255.
    Fixed,
};

} // namespace hipvit
