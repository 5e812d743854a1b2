// detection_loss: matches the queries of each layer with the targets of an image, and computes the losses and their derivatives.
//
// Shapes: as in detection_loss.h, row-major.
// Alignment: any.
// Accumulator: f32, in a fixed order.
// Geometry: a layer of an image per block of DETECTION_LOSS_THREADS. Threads share the queries. The matching is the Hungarian algorithm: a
//   target extends it along a shortest path, whose steps are minima over all queries. Costs are computed anew in each step.
#include "detection_loss.h"
#include "loss.hpp"
#include "wave.hpp"

using namespace hipvit;

constexpr u32 THREADS = DETECTION_LOSS_THREADS, WAVES = THREADS / WAVE, NONE = 0xffffffff;

struct Box {
    float at[4]; // x, y, width, height

    template <class T> static HIPVIT_DEVICE Box load(const T *from) {
        return {{to_float(from[0]), to_float(from[1]), to_float(from[2]), to_float(from[3])}};
    }
};

// Extents of a box and a target along an axis, with the derivatives by both ends of the box. Equal ends share a derivative.
struct Axis {
    float shared, enclosing, d_shared[2], d_enclosing[2];

    HIPVIT_DEVICE Axis(const Box &box, const Box &target, int axis) {
        const float first = box.at[axis] - 0.5f * box.at[2 + axis], last = box.at[axis] + 0.5f * box.at[2 + axis];
        const float start = target.at[axis] - 0.5f * target.at[2 + axis];
        const float end = target.at[axis] + 0.5f * target.at[2 + axis];
        shared = smaller(last, end) - larger(first, start);
        enclosing = larger(last, end) - smaller(first, start);
        d_shared[0] = first == start ? -0.5f : first > start ? -1.0f : 0.0f;
        d_shared[1] = last == end ? 0.5f : last < end ? 1.0f : 0.0f;
        d_enclosing[0] = first == start ? -0.5f : first < start ? -1.0f : 0.0f;
        d_enclosing[1] = last == end ? 0.5f : last > end ? 1.0f : 0.0f;
    }
};

struct Overlap {
    Axis axes[2];
    float unite, enclosing, iou, giou;

    HIPVIT_DEVICE Overlap(const Box &box, const Box &target) : axes{Axis(box, target, 0), Axis(box, target, 1)} {
        const float intersection = larger(axes[0].shared, 0.0f) * larger(axes[1].shared, 0.0f);
        unite = box.at[2] * box.at[3] + target.at[2] * target.at[3] - intersection;
        enclosing = axes[0].enclosing * axes[1].enclosing;
        iou = intersection / unite;
        giou = iou - 1.0f + unite / enclosing;
    }
    // The derivatives of giou by the centre and the side of an axis.
    HIPVIT_DEVICE void derive(const Box &box, int axis, float (&d)[2]) const {
        const Axis &own = axes[axis], &other = axes[1 - axis];
        const float by_area = 1.0f / enclosing - iou / unite, by_intersection = 1.0f / unite - by_area;
        const float by_enclosing = -unite / (enclosing * enclosing);
        float ends[2];
        for (int i = 0; i < 2; ++i) {
            const float shared = own.shared >= 0.0f ? own.d_shared[i] * larger(other.shared, 0.0f) : 0.0f;
            ends[i] = by_intersection * shared + by_enclosing * own.d_enclosing[i] * other.enclosing;
        }
        d[0] = ends[0] + ends[1];
        d[1] = 0.5f * (ends[1] - ends[0]) + by_area * box.at[3 - axis];
    }
};

HIPVIT_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// p to a power that is not negative.
HIPVIT_DEVICE float power(float p, float exponent) {
    if (exponent == 0.0f) return 1.0f;
    return exponent == 2.0f ? p * p : fast_exp2(exponent * fast_log2(p));
}

struct Nearest {
    float distance;
    u32 query;

    HIPVIT_DEVICE void take(float other, u32 at) {
        if (other < distance || (other == distance && at < query)) distance = other, query = at;
    }
};

// Returns the nearest of all threads, the first of equal ones.
HIPVIT_DEVICE Nearest nearest_of_block(Nearest own, Nearest *scratch) {
    for (int bit = 1; bit < WAVE; bit *= 2) {
        const float other = read_lane(own.distance, lane_index() ^ bit);
        own.take(other, read_lane(own.query, lane_index() ^ bit));
    }
    barrier(); // the previous reduction has read the scratch
    if (lane_index() == 0) scratch[wave_index()] = own;
    barrier();
    for (u32 wave = 0; wave < WAVES; ++wave) own.take(scratch[wave].distance, scratch[wave].query);
    return own;
}

template <class T> HIPVIT_DEVICE void detection_loss(const DetectionLossArgs &a) {
    HIPVIT_LDS static float distance[DETECTION_LOSS_QUERIES], of_query[DETECTION_LOSS_QUERIES];
    HIPVIT_LDS static float of_target[DETECTION_LOSS_QUERIES];
    HIPVIT_LDS static u32 owner[DETECTION_LOSS_QUERIES], before[DETECTION_LOSS_QUERIES], visited[DETECTION_LOSS_QUERIES];
    HIPVIT_LDS static Nearest nearest[WAVES];
    HIPVIT_LDS static float scratch[WAVES];
    const RowGroup<THREADS> group{true, scratch};
    const u32 thread = group.rank(), queries = a.queries, classes = a.classes;
    const u64 layer = block_index();
    const T *logits = (const T *)a.logits + layer * queries * classes;
    const T *boxes = (const T *)a.boxes + layer * queries * 4;
    const float *targets = a.targets + layer / a.layers * a.targets_per_image * 5;
    const auto is_target = [&](u32 row) { return targets[row * 5] >= 0.0f && targets[row * 5] < float(classes); };
    const auto cost = [&](u32 row, u32 query) {
        const Box box = Box::load(boxes + u64(query) * 4), target = Box::load(targets + row * 5 + 1);
        const float p = sigmoid(to_float(logits[u64(query) * classes + u32(targets[row * 5])]));
        const float own = a.focal_alpha * power(1.0f - p, a.focal_gamma) * -(LN_2 * fast_log2(p + 1e-8f));
        const float none = (1.0f - a.focal_alpha) * power(p, a.focal_gamma) * -(LN_2 * fast_log2(1.0f - p + 1e-8f));
        float far = 0.0f;
        for (int i = 0; i < 4; ++i) far += absolute(box.at[i] - target.at[i]);
        const float sum = a.class_cost * (own - none) + a.distance_cost * far - a.overlap_cost * Overlap(box, target).giou;
        return sum < 1e6f ? sum : 1e6f;
    };

    for (u32 i = thread; i < queries; i += THREADS) {
        of_query[i] = 0.0f;
        owner[i] = NONE;
    }
    for (u32 row = 0; row < a.targets_per_image; ++row) {
        if (!is_target(row)) continue;
        for (u32 i = thread; i < queries; i += THREADS) {
            distance[i] = infinity();
            visited[i] = 0;
        }
        if (thread == 0) of_target[row] = 0.0f;
        barrier();
        u32 from = NONE, at = row, end;
        for (;;) {
            const float potential = of_target[at];
            Nearest own{infinity(), NONE};
            for (u32 i = thread; i < queries; i += THREADS) {
                if (visited[i]) continue;
                const float reduced = cost(at, i) - potential - of_query[i];
                if (reduced < distance[i]) {
                    distance[i] = reduced;
                    before[i] = from;
                }
                own.take(distance[i], i);
            }
            own = nearest_of_block(own, nearest);
            end = own.query;
            if (end >= queries) break; // no cost is NaN, and targets are at most queries: this bounds the access below
            if (thread == 0) of_target[row] += own.distance;
            for (u32 i = thread; i < queries; i += THREADS) {
                if (visited[i]) {
                    of_target[owner[i]] += own.distance;
                    of_query[i] -= own.distance;
                } else {
                    distance[i] -= own.distance;
                }
                if (i == end) visited[i] = 1;
            }
            barrier();
            from = end;
            at = owner[end];
            if (at == NONE) break;
        }
        barrier();
        if (thread == 0 && end < queries) {
            while (before[end] != NONE) {
                owner[end] = owner[before[end]];
                end = before[end];
            }
            owner[end] = row;
        }
        barrier();
    }
    barrier();

    float loss = 0.0f;
    for (u32 i = thread; i < queries; i += THREADS) {
        T *dbox = (T *)a.dboxes + (layer * queries + i) * 4;
        float gradient[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        distance[i] = -1.0f;
        if (owner[i] != NONE) {
            const Box box = Box::load(boxes + u64(i) * 4), target = Box::load(targets + owner[i] * 5 + 1);
            const Overlap overlap(box, target);
            distance[i] = overlap.iou;
            loss += a.overlap_weight * (1.0f - overlap.giou);
            for (int axis = 0; axis < 2; ++axis) {
                float d[2];
                overlap.derive(box, axis, d);
                for (int j = 0; j < 2; ++j) {
                    const float change = box.at[axis + 2 * j] - target.at[axis + 2 * j];
                    loss += a.distance_weight * absolute(change);
                    const float sign = change > 0.0f ? 1.0f : change < 0.0f ? -1.0f : 0.0f;
                    gradient[axis + 2 * j] = a.distance_weight * sign - a.overlap_weight * d[j];
                }
            }
        }
        for (int j = 0; j < 4; ++j) dbox[j] = from_float<T>(gradient[j]);
        a.overlaps[layer * queries + i] = distance[i];
    }
    barrier();
    T *dlogits = (T *)a.dlogits + layer * queries * classes;
    for (u64 i = thread; i < u64(queries) * classes; i += THREADS) {
        const u32 query = u32(i / classes), own = owner[query];
        const float z = to_float(logits[i]), p = sigmoid(z);
        const bool matched = own != NONE && u32(targets[own * 5]) == u32(i - u64(query) * classes);
        const float score = matched ? distance[query] : 0.0f;
        const float weight = a.class_weight * (matched ? score : a.alpha * power(p, a.gamma));
        loss += weight * (larger(z, 0.0f) - z * score + softplus_rest(z));
        dlogits[i] = from_float<T>(weight * (p - score));
    }
    loss = group.template reduce<Sum>(loss);
    if (thread == 0) a.losses[layer] = loss;
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(DETECTION_LOSS_THREADS) name##_##T(DetectionLossArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, detection_loss)
