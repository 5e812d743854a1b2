// Distances between the tokens of a grid.
#pragma once
#include "device.hpp"
#include "relative.h"

namespace hipvit {

HIPVIT_DEVICE u32 token_count(const RelativeGrid &g) { return g.rows * g.columns + g.class_token; }

// Number of distances between the tokens of the grid. The rows of a class token follow them: to a patch, from a patch, to itself.
HIPVIT_DEVICE u32 distance_count(const RelativeGrid &g) { return (2 * g.rows - 1) * (2 * g.columns - 1); }

// Row of the table for a query and a key.
HIPVIT_DEVICE u32 distance_of(const RelativeGrid &g, u32 query, u32 key) {
    if (query < g.class_token) return distance_count(g) + (key < g.class_token ? 2 : 0);
    if (key < g.class_token) return distance_count(g) + 1;
    query -= g.class_token;
    key -= g.class_token;
    const u32 down = query / g.columns + g.rows - 1 - key / g.columns;
    const u32 right = query % g.columns + g.columns - 1 - key % g.columns;
    return down * (2 * g.columns - 1) + right;
}

// The part of a window at the lower and the right edge that a token belongs to.
HIPVIT_DEVICE u32 part_of(const RelativeGrid &g, u32 kind, u32 token) {
    const bool is_lower = kind / 2 == 1 && g.shift_rows > 0 && token / g.columns + g.shift_rows >= g.rows;
    const bool is_right = kind % 2 == 1 && g.shift_columns > 0 && token % g.columns + g.shift_columns >= g.columns;
    return u32(is_lower) * 2 + u32(is_right);
}

} // namespace hipvit
