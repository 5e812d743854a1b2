// How quantize and norm_quantize round to 8 bits.
#pragma once

namespace hipvit {

/// What x becomes.
enum class QuantizeCode : unsigned {
    /// E4M3 of x · `factor`.
    Float8,
    /// E4M3 of x / (each row's largest magnitude / 448).
    Float8Rows,
    /// 256 levels over each row's range and 0.
    Range,
    /// 256 levels over ± each row's largest magnitude.
    Magnitude,
    /// The levels `factor` · (q − `zero`), q from 0 to 255.
    Fixed,
};

} // namespace hipvit
