// Arguments and geometry of deformable_attention_backward.
#pragma once
#include "deformable_attention.h"
#include "device_pointer.h"

namespace hipvit {

/// Maximum number of points of a head of `deformable_attention_backward`.
constexpr unsigned DEFORMABLE_BACKWARD_POINTS = 128;

/// `deformable_attention_backward`: gradients of all operands of `deformable_attention`.
struct DeformableAttentionBackwardArgs {
    /// T `[images, tokens, heads, head_dim]`: the pixels of all levels after each other.
    DEVICE_POINTER(const void) value;
    /// T `[images, queries, 4]`: x, y, width and height relative to the image.
    DEVICE_POINTER(const void) boxes;
    /// T `[images, queries, heads, levels, points, 2]`: x and y relative to the box.
    DEVICE_POINTER(const void) offsets;
    /// T `[images, queries, heads, levels, points]`.
    DEVICE_POINTER(const void) scores;
    /// T `[images, queries, heads, head_dim]`.
    DEVICE_POINTER(const void) dy;
    /// T, as `value`.
    DEVICE_POINTER(void) dvalue;
    /// T, as `boxes`.
    DEVICE_POINTER(void) dboxes;
    /// T, as `offsets`.
    DEVICE_POINTER(void) doffsets;
    /// T, as `scores`.
    DEVICE_POINTER(void) dscores;
    /// Images in the batch.
    unsigned images;
    /// Pixels of all levels.
    unsigned tokens;
    /// Queries of an image.
    unsigned queries;
    /// Heads of a query.
    unsigned heads;
    /// Channels of a head.
    unsigned head_dim;
    /// Levels, at most `DEFORMABLE_LEVELS`.
    unsigned levels;
    /// Points of a level.
    unsigned points;
    /// 1: the nearest pixel; 0: linear interpolation.
    unsigned discrete;
    /// Factor of the offsets.
    float scale;
    /// Rows of each level.
    unsigned heights[DEFORMABLE_LEVELS];
    /// Columns of each level.
    unsigned widths[DEFORMABLE_LEVELS];
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
