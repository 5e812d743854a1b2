"""Prints the figures of the test in crates/train/src/fit/average_precision.rs: mean average precision as COCO defines it, by an independent
calculation with NumPy.

    python scripts/average_precision.py
"""

import numpy as np


def number(seed, most):
    return (seed * 7919 + seed * seed * 31 + 17) % most


def scenes():
    for image in range(12):
        known, found = [], []
        for item in range(number(image, 5)):
            seed = image * 10 + item
            left, top, width, height = number(seed, 60), number(seed + 1, 60), 10 + number(seed + 2, 20), 10 + number(seed + 3, 20)
            label = number(seed + 4, 3)
            known.append((label, [left, top, left + width, top + height]))
            for repeat in range(number(seed + 5, 3)):
                shift = number(seed + repeat + 6, 9)
                found.append((0 if number(seed + repeat, 7) == 0 else label, np.float32(1 + number(seed + 3 * repeat, 97)) / np.float32(100),
                              [left + shift, top, left + width + shift * 0.5, top + height]))
        yield known, found


def overlaps(found, known):
    a, b = np.array(found, float).reshape(-1, 1, 4), np.array(known, float).reshape(1, -1, 4)
    sides = (np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])).clip(0)
    shared = sides.prod(-1)
    return shared / ((a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - shared)


def average_precision(images, label, threshold):
    scores, hits, count = [], [], 0
    for known, found in images:
        boxes = [box for of, box in known if of == label]
        order = sorted((entry for entry in found if entry[0] == label), key=lambda entry: -entry[1])[:100]
        count += len(boxes)
        free = np.ones(len(boxes), bool)
        table = overlaps([box for _, _, box in order], boxes)
        for row, (_, score, _) in enumerate(order):
            allowed = np.where(free & (table[row] >= min(threshold, 1 - 1e-10)), table[row], -1)
            best = len(allowed) - 1 - int(allowed[::-1].argmax()) if len(allowed) else -1
            hit = best >= 0 and allowed[best] >= 0
            if hit:
                free[best] = False
            scores.append(score)
            hits.append(hit)
    order = np.argsort(-np.array(scores, np.float32), kind="mergesort")
    hits = np.array(hits, bool)[order]
    right = np.cumsum(hits)
    recall, precision = right / count, right / (np.arange(len(hits)) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, np.linspace(0, 1, 101), side="left")
    return float(np.mean([precision[place] if place < len(precision) else 0.0 for place in places]))


if __name__ == "__main__":
    images = list(scenes())
    labels = sorted({label for known, _ in images for label, _ in known})
    table = np.array([[average_precision(images, label, threshold) for label in labels] for threshold in np.linspace(0.5, 0.95, 10)])
    print("mAP@[.5:.95]", repr(float(table.mean())), "mAP@0.5", repr(float(table[0].mean())))
