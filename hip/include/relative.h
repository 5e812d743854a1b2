// Grids of tokens, between which attention has a bias by relative position.
#pragma once

namespace hipvit {

/// Threads per block of `relative_bias` and `relative_bias_backward`.
constexpr unsigned RELATIVE_THREADS = 256;

/// A grid of tokens, and the kinds of its windows.
struct RelativeGrid {
    /// Rows of tokens.
    unsigned rows;
    /// Columns of tokens.
    unsigned columns;
    /// 1 if there is a class token before those of the grid.
    unsigned class_token;
    /// Number of attention heads.
    unsigned heads;
    /// Kinds of windows: 1, or 4 for shifted windows.
    unsigned kinds;
    /// Rows by which the windows are shifted.
    unsigned shift_rows;
    /// Columns by which the windows are shifted.
    unsigned shift_columns;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
