// Arguments and geometry of non_max_suppression.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `non_max_suppression`.
constexpr unsigned NMS_THREADS = 256;
/// Words of 32 boxes per thread.
constexpr unsigned NMS_WORDS = 16;
/// Maximum number of boxes of an image.
constexpr unsigned NMS_BOXES = NMS_WORDS * 32 * NMS_THREADS;

/// `non_max_suppression`: the best boxes of each image and class that do not overlap. The first of two launches selects boxes for each class,
/// the second one moves the rows of all classes to the front.
struct NonMaxSuppressionArgs {
    /// T `[images, boxes, 4]`.
    DEVICE_POINTER(const void) boxes;
    /// T `[images, classes, boxes]`.
    DEVICE_POINTER(const void) scores;
    /// i32 `[images · classes · most, 3]`: image, class and box. Aliases no operand. Between the launches, the box is −1 in rows that are not used.
    DEVICE_POINTER(int) rows;
    /// i32 `[1]`. Aliases no operand.
    DEVICE_POINTER(int) count;
    /// Number of images.
    unsigned images;
    /// Classes of an image.
    unsigned classes;
    /// Boxes of an image, at most NMS_BOXES.
    unsigned length;
    /// Maximum number of boxes of a class in an image.
    unsigned most;
    /// Largest intersection over union.
    float overlap;
    /// Scores must exceed this if `limited` is 1.
    float score;
    /// 1: `score` is a limit.
    unsigned limited;
    /// 1: boxes are [x, y, width, height]; 0: two corners [y, x, y, x].
    unsigned centered;
    /// 0: the first launch; 1: the second one.
    unsigned launch;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
