// Arguments of permute_tokens.
#pragma once
#include "device_pointer.h"
#include "elementwise.h"

namespace hipvit {

/// Order of the tokens of a grid: window by window, in the grid rolled by `shift`.
struct GridOrder {
    /// Rows and columns of a window.
    unsigned window[2];
    /// Rows and columns by which the grid is rolled towards its start.
    unsigned shift[2];
    /// Rows and columns that are rolled, at least those of the grid.
    unsigned rolled[2];
    /// Columns of windows.
    unsigned across;
    /// Tokens of an image, with padding.
    unsigned tokens;
    /// 1: the tokens of a window are column by column; 0: row by row.
    unsigned transposed;
};

/// `permute_tokens`: out = the tokens of x in another order. Padding is 0.
struct PermuteTokensArgs {
    /// T `[images, from.tokens, channels]`.
    DEVICE_POINTER(const void) x;
    /// T `[images, to.tokens, channels]`.
    DEVICE_POINTER(void) out;
    /// Images in the batch.
    unsigned images;
    /// Channels of a token.
    unsigned channels;
    /// Rows and columns of the grid.
    unsigned grid[2];
    /// Order of `x`.
    GridOrder from;
    /// Order of `out`.
    GridOrder to;
};

} // namespace hipvit
