// Arguments and geometry of detection_loss.
#pragma once
#include "device_pointer.h"

namespace hipvit {

/// Threads per block of `detection_loss`.
constexpr unsigned DETECTION_LOSS_THREADS = 256;

/// Maximum number of queries of a layer, and of targets of an image, of `detection_loss`.
constexpr unsigned DETECTION_LOSS_QUERIES = 1024;

/// `detection_loss`: matches the queries of each layer with the targets of an image, and computes the losses and their derivatives.
struct DetectionLossArgs {
    /// T `[images, layers, queries, classes]`.
    DEVICE_POINTER(const void) logits;
    /// T `[images, layers, queries, 4]`: x, y, width and height.
    DEVICE_POINTER(const void) boxes;
    /// `[images, targets, 5]`: class, x, y, width and height. Rows whose class is negative, or not below `classes`, are no targets.
    DEVICE_POINTER(const float) targets;
    /// f32 `[images, layers]`.
    DEVICE_POINTER(float) losses;
    /// T, as `logits`.
    DEVICE_POINTER(void) dlogits;
    /// T, as `boxes`.
    DEVICE_POINTER(void) dboxes;
    /// f32 `[images, layers, queries]`: intersection over union with the target, or −1.
    DEVICE_POINTER(float) overlaps;
    /// Images in the batch.
    unsigned images;
    /// Layers of an image.
    unsigned layers;
    /// Queries of a layer, at most `DETECTION_LOSS_QUERIES`.
    unsigned queries;
    /// Classes of a query.
    unsigned classes;
    /// Rows of the targets of an image, at most `queries`.
    unsigned targets_per_image;
    /// Factor of the difference of focal losses in the cost of a match.
    float class_cost;
    /// Factor of the distance of boxes in the cost of a match.
    float distance_cost;
    /// Factor of the negated overlap of boxes in the cost of a match.
    float overlap_cost;
    /// Weight of the class in the focal loss.
    float focal_alpha;
    /// Power in the focal loss.
    float focal_gamma;
    /// Factor of the varifocal loss.
    float class_weight;
    /// Factor of the distance of boxes.
    float distance_weight;
    /// Factor of 1 − overlap.
    float overlap_weight;
    /// Factor of the varifocal loss of logits without a target.
    float alpha;
    /// Power of the probability in the varifocal loss of these logits.
    float gamma;
    /// Unused; the structure has no padding.
    unsigned reserved;
};

} // namespace hipvit
