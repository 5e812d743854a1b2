// non_max_suppression: the best boxes of each image and class that do not overlap, in two launches.
//
// Shapes: boxes T [images, boxes, 4]; scores T [images, classes, boxes]; rows i32 [images·classes·most, 3]; count i32 [1]. All row-major.
// Alignment: any.
// Accumulator: f32.
// Geometry: launch 0: blocks of NMS_THREADS, a class of an image each. A thread has the boxes that are NMS_THREADS apart, with a bit each in
//   LDS for those that are taken or overlap. The block selects the best of the others until `most` are taken.
//   Launch 1: one block of NMS_THREADS moves the rows that are used to the front, NMS_THREADS at a time, and sets the others to zero.
#include "non_max_suppression.h"
#include "device.hpp"

using namespace hipvit;

struct Edges {
    float low[2], high[2];

    HIPVIT_DEVICE float area() const { return (high[0] - low[0]) * (high[1] - low[1]); }
};

template <class T> HIPVIT_DEVICE Edges edges_of(const T *box, bool centered) {
    const float a = to_float(box[0]), b = to_float(box[1]), c = to_float(box[2]), d = to_float(box[3]);
    if (centered) {
        const float width = 0.5f * c, height = 0.5f * d;
        return {{a - width, b - height}, {a + width, b + height}};
    }
    return {{smaller(b, d), smaller(a, c)}, {larger(b, d), larger(a, c)}};
}

HIPVIT_DEVICE bool overlap(const Edges &x, const Edges &y, float limit) {
    const float across = smaller(x.high[0], y.high[0]) - larger(x.low[0], y.low[0]);
    const float down = smaller(x.high[1], y.high[1]) - larger(x.low[1], y.low[1]);
    if (!(across > 0.0f && down > 0.0f)) return false;
    const float area = x.area(), other = y.area(), intersection = across * down;
    const float joint = area + other - intersection;
    return area > 0.0f && other > 0.0f && joint > 0.0f && quotient(intersection, joint) > limit;
}

// A number that orders as x does, above 0. Both zeros are equal.
HIPVIT_DEVICE u32 order_of(float x) {
    const u32 bits = bits_of(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

template <class T>
HIPVIT_DEVICE void select(const NonMaxSuppressionArgs &a, u32 (&gone)[NMS_WORDS][NMS_THREADS],
                          u64 (&best)[NMS_THREADS]) {
    const u32 pair = block_index(), thread = thread_index();
    if (pair >= a.images * a.classes) return; // the whole block
    const u32 image = pair / a.classes;
    const T *boxes = (const T *)a.boxes + u64(image) * a.length * 4;
    const T *scores = (const T *)a.scores + u64(pair) * a.length;
    int *rows = a.rows + u64(pair) * a.most * 3;
    for (u32 word = 0; word < NMS_WORDS; ++word) gone[word][thread] = 0;
    u32 taken = 0;
    for (; taken < a.most; ++taken) {
        // The best score, and the lowest index of those with it.
        u64 own = 0;
        for (u32 index = thread, bit = 0; index < a.length; index += NMS_THREADS, ++bit) {
            if (gone[bit / 32][thread] >> bit % 32 & 1) continue;
            const float score = to_float(scores[index]);
            if (score != score || (a.limited && !(score > a.score))) continue;
            const u64 key = u64(order_of(score)) << 32 | ~index;
            own = key > own ? key : own;
        }
        best[thread] = own;
        barrier();
        for (u32 half = NMS_THREADS / 2; half; half /= 2) {
            if (thread < half && best[thread + half] > best[thread]) best[thread] = best[thread + half];
            barrier();
        }
        const u64 top = best[0];
        barrier(); // the next box is found after all threads have read this one
        if (!top) break;
        const u32 chosen = ~u32(top);
        const Edges edges = edges_of(boxes + u64(chosen) * 4, a.centered);
        for (u32 index = thread, bit = 0; index < a.length; index += NMS_THREADS, ++bit) {
            const bool is_gone = index == chosen || overlap(edges_of(boxes + u64(index) * 4, a.centered), edges, a.overlap);
            if (is_gone) gone[bit / 32][thread] |= 1u << bit % 32;
        }
        if (thread == 0) {
            rows[u64(taken) * 3] = int(image);
            rows[u64(taken) * 3 + 1] = int(pair % a.classes);
            rows[u64(taken) * 3 + 2] = int(chosen);
        }
    }
    for (u32 row = taken + thread; row < a.most; row += NMS_THREADS) rows[u64(row) * 3 + 2] = -1;
}

// A row moves forward, to where all threads have read the rows.
HIPVIT_DEVICE void move_to_front(const NonMaxSuppressionArgs &a, u32 (&places)[NMS_THREADS]) {
    const u32 total = a.images * a.classes * a.most, thread = thread_index();
    u32 used = 0;
    for (u32 first = 0; first < total; first += NMS_THREADS) {
        const u64 row = first + thread;
        const int index = row < total ? a.rows[row * 3 + 2] : -1;
        const int image = index < 0 ? 0 : a.rows[row * 3], category = index < 0 ? 0 : a.rows[row * 3 + 1];
        places[thread] = index < 0 ? 0 : 1;
        barrier();
        for (u32 distance = 1; distance < NMS_THREADS; distance *= 2) {
            const u32 before = thread >= distance ? places[thread - distance] : 0;
            barrier();
            places[thread] += before;
            barrier();
        }
        if (index >= 0) {
            const u64 to = used + places[thread] - 1;
            a.rows[to * 3] = image;
            a.rows[to * 3 + 1] = category;
            a.rows[to * 3 + 2] = index;
        }
        used += places[NMS_THREADS - 1];
        barrier(); // the places have been read
    }
    for (u64 row = used + thread; row < total; row += NMS_THREADS) {
        a.rows[row * 3] = 0;
        a.rows[row * 3 + 1] = 0;
        a.rows[row * 3 + 2] = 0;
    }
    if (thread == 0) a.count[0] = int(used);
}

template <class T> HIPVIT_DEVICE void non_max_suppression(const NonMaxSuppressionArgs &a) {
    HIPVIT_LDS static u32 gone[NMS_WORDS][NMS_THREADS];
    HIPVIT_LDS static u64 best[NMS_THREADS];
    if (a.launch == 0) {
        select<T>(a, gone, best);
    } else if (block_index() == 0) {
        move_to_front(a, gone[0]);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(NMS_THREADS) name##_##T(NonMaxSuppressionArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, non_max_suppression)
