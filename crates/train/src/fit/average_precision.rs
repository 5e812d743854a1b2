//! Mean average precision of detected objects, as COCO defines it.

use std::collections::BTreeSet;

use super::figures::BoxFigures;

/// Thresholds of the intersection over union: 0.5, 0.55, … 0.95.
const THRESHOLDS: usize = 10;
/// Recalls at which the precision is averaged: 0, 0.01, … 1.
const RECALLS: usize = 101;
/// Maximum number of objects of a class in an image.
const MOST: usize = 100;

/// An object that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) class: usize,
    pub(super) score: f32,
    /// Left, top, right, bottom.
    pub(super) corners: [f64; 4],
}

/// An object of the dataset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) class: usize,
    /// Left, top, right, bottom.
    pub(super) corners: [f64; 4],
}

/// Objects of an image.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageObjects {
    pub(super) known: Vec<Known>,
    /// The best first.
    pub(super) found: Vec<Found>,
}

/// The objects of a class in an image.
struct ClassObjects {
    known: usize,
    /// Scores of what was found, in descending order, and the overlap with each known object.
    found: Vec<(f32, Vec<f64>)>,
}

impl ClassObjects {
    fn new(image: &ImageObjects, class: usize) -> Self {
        let known = image.known.iter().filter(|object| object.class == class);
        let known: Vec<[f64; 4]> = known.map(|object| object.corners).collect();
        let found = image.found.iter().filter(|object| object.class == class);
        let mut found: Vec<&Found> = found.collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        let overlaps = |object: &Found| {
            let overlaps = known.iter().map(|corners| overlap(&object.corners, corners));
            (object.score, overlaps.collect())
        };
        Self {
            known: known.len(),
            found: found.into_iter().take(MOST).map(overlaps).collect(),
        }
    }
}

/// Returns the means over the classes of the dataset. They are those of pycocotools for boxes of any size.
pub(super) fn figures(images: &[ImageObjects]) -> BoxFigures {
    let classes = images
        .iter()
        .flat_map(|image| &image.known)
        .map(|object| object.class);
    let classes: BTreeSet<usize> = classes.collect();
    let mut sums = [0.0; THRESHOLDS];
    for &class in &classes {
        let images = images.iter().map(|image| ClassObjects::new(image, class));
        let images: Vec<ClassObjects> = images.collect();
        for (step, sum) in sums.iter_mut().enumerate() {
            *sum += average_precision(&images, place(0.5, 0.95, step, THRESHOLDS));
        }
    }
    let mean = |sum: f64| sum / classes.len().max(1) as f64;
    BoxFigures {
        map: mean(sums.iter().sum::<f64>() / THRESHOLDS as f64),
        map_50: mean(sums[0]),
    }
}

/// Returns the average precision of a class at a threshold.
fn average_precision(images: &[ClassObjects], threshold: f64) -> f64 {
    let mut matches: Vec<(f32, bool)> = Vec::new();
    let objects: usize = images.iter().map(|image| image.known).sum();
    for image in images {
        let mut is_taken = vec![false; image.known];
        for (score, overlaps) in &image.found {
            // The last one of equal overlaps, as COCO's evaluation takes it.
            let mut best = (threshold.min(1.0 - 1e-10), None);
            for (place, &overlap) in overlaps.iter().enumerate() {
                if !is_taken[place] && overlap >= best.0 {
                    best = (overlap, Some(place));
                }
            }
            if let Some(place) = best.1 {
                is_taken[place] = true;
            }
            matches.push((*score, best.1.is_some()));
        }
    }
    matches.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut right = 0;
    let points = matches.iter().enumerate().map(|(place, &(_, is_right))| {
        right += usize::from(is_right);
        [
            right as f64 / objects.max(1) as f64,
            right as f64 / (place + 1) as f64,
        ]
    });
    let mut points: Vec<[f64; 2]> = points.collect();
    // The precision at a recall is the best one at this recall or a larger one.
    let mut best = 0.0f64;
    for point in points.iter_mut().rev() {
        best = best.max(point[1]);
        point[1] = best;
    }
    let precision = |step: usize| {
        let recall = place(0.0, 1.0, step, RECALLS);
        let first = points.partition_point(|point| point[0] < recall);
        points.get(first).map_or(0.0, |point| point[1])
    };
    (0..RECALLS).map(precision).sum::<f64>() / RECALLS as f64
}

/// Returns a number of NumPy's `linspace`, whose last bit decides about equal recalls.
fn place(first: f64, last: f64, step: usize, count: usize) -> f64 {
    if step + 1 == count {
        return last;
    }
    first + step as f64 * ((last - first) / (count - 1) as f64)
}

/// Returns the intersection over union of two boxes.
fn overlap(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let extent = |axis: usize| (a[2 + axis].min(b[2 + axis]) - a[axis].max(b[axis])).max(0.0);
    let area = |of: &[f64; 4]| (of[2] - of[0]) * (of[3] - of[1]);
    let shared = extent(0) * extent(1);
    shared / (area(a) + area(b) - shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of `scripts/average_precision.py`, which computes COCO's definition with NumPy.
    #[test]
    fn figures_are_those_of_an_independent_calculation() {
        let number = |seed: usize, most: usize| (seed * 7919 + seed * seed * 31 + 17) % most;
        let mut images = Vec::new();
        for image in 0..12 {
            let mut objects = ImageObjects::default();
            for object in 0..number(image, 5) {
                let seed = image * 10 + object;
                let [left, top] = [number(seed, 60), number(seed + 1, 60)].map(|x| x as f64);
                let [width, height] =
                    [10 + number(seed + 2, 20), 10 + number(seed + 3, 20)].map(|x| x as f64);
                let class = number(seed + 4, 3);
                let corners = [left, top, left + width, top + height];
                objects.known.push(Known { class, corners });
                for repeat in 0..number(seed + 5, 3) {
                    let shift = number(seed + repeat + 6, 9) as f64;
                    objects.found.push(Found {
                        class: if number(seed + repeat, 7) == 0 { 0 } else { class },
                        score: (1 + number(seed + 3 * repeat, 97)) as f32 / 100.0,
                        corners: [left + shift, top, left + width + shift * 0.5, top + height],
                    });
                }
            }
            images.push(objects);
        }
        let BoxFigures { map, map_50 } = figures(&images);
        let expected = [0.3416326681193774, 0.7223738399092247];
        for (found, expected) in [map, map_50].into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
        }
        assert_eq!(figures(&[]).map, 0.0);
    }
}
