//! The best boxes that do not overlap.

use std::cmp::Ordering;
use std::fmt;

use super::operands::{count, exactly};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, activation, positive};
use crate::dtype::DType;

/// `(boxes [B,N,4], scores [B,C,N]) → (rows [B·C·k,3], count [1])` in i32: for each image and class, up to k boxes from the best score on.
/// A box that overlaps a better one is left out.
///
/// A row is `[image, class, box]`. The first `count` rows are results, ordered by image, class and score; the others are zeros. Boxes of equal
/// scores are ordered by their index. Scores that are NaN are left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NonMaxSuppression {
    /// Maximum number of boxes of a class in an image.
    pub most: usize,
    /// Boxes overlap if their intersection over union exceeds this.
    pub overlap: f32,
    /// Scores must exceed this. `None` for all scores.
    pub score: Option<f32>,
    /// True for boxes `[x, y, width, height]` around their centre. Otherwise they are two corners `[y, x, y, x]` in any order.
    pub centered: bool,
}

/// Edges of a box.
#[derive(Clone, Copy, Debug)]
struct Edges<T> {
    low: [T; 2],
    high: [T; 2],
}

fn smaller<T: Real>(x: T, y: T) -> T {
    if y < x { y } else { x }
}

impl<T: Real> Edges<T> {
    fn area(&self) -> T {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// Returns true if the intersection over union with `other` exceeds `limit`. Boxes without an area overlap none.
    fn overlaps(&self, other: &Self, limit: T) -> bool {
        let side =
            |axis: usize| smaller(self.high[axis], other.high[axis]) - self.low[axis].max(other.low[axis]);
        let [across, down] = [side(0), side(1)];
        if !(across > T::ZERO && down > T::ZERO) {
            return false;
        }
        let [own, of_other] = [self.area(), other.area()];
        let intersection = across * down;
        let union = own + of_other - intersection;
        own > T::ZERO && of_other > T::ZERO && union > T::ZERO && intersection / union > limit
    }
}

impl NonMaxSuppression {
    fn edges<T: Real>(&self, corners: &[T]) -> Edges<T> {
        let [a, b, c, d] = [0, 1, 2, 3].map(|index| corners[index]);
        if self.centered {
            let half = T::from_f64(0.5);
            let [width, height] = [c * half, d * half];
            return Edges {
                low: [a - width, b - height],
                high: [a + width, b + height],
            };
        }
        Edges {
            low: [smaller(b, d), smaller(a, c)],
            high: [b.max(d), a.max(c)],
        }
    }

    /// Writes the indices of the selected boxes, from the best on, into `selected`. `boxes` has four numbers for each of the scores.
    pub fn select<T: Real>(&self, boxes: &[T], scores: &[T], selected: &mut Vec<usize>) {
        let limit = self.score.map(T::from_f32);
        let is_candidate = |&index: &usize| {
            let score = scores[index];
            match limit {
                Some(limit) => score > limit,
                None => score.partial_cmp(&score).is_some(),
            }
        };
        let mut order: Vec<usize> = (0..scores.len()).filter(is_candidate).collect();
        order.sort_unstable_by(|&a, &b| {
            let ordering = scores[b].partial_cmp(&scores[a]).unwrap_or(Ordering::Equal);
            ordering.then(a.cmp(&b))
        });
        selected.clear();
        let mut kept: Vec<Edges<T>> = Vec::new();
        let overlap = T::from_f32(self.overlap);
        for index in order {
            if selected.len() == self.most {
                break;
            }
            let edges = self.edges(&boxes[4 * index..4 * index + 4]);
            if !kept.iter().any(|better| edges.overlaps(better, overlap)) {
                kept.push(edges);
                selected.push(index);
            }
        }
    }
}

impl Definition for NonMaxSuppression {
    const NAME: &'static str = "non_max_suppression";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} overlap {}", self.most, self.overlap)?;
        if let Some(score) = self.score {
            write!(f, " score {score}")?;
        }
        f.write_str(if self.centered { " centered" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [boxes, scores] = exactly(operands)?;
        match (boxes, scores) {
            (&[images, length, 4], &[rows, classes, of_scores])
                if images == rows && length == of_scores && self.most > 0 && self.most <= length =>
            {
                let rows = images
                    .checked_mul(classes)
                    .and_then(|pairs| pairs.checked_mul(self.most));
                let rows = rows
                    .filter(|&rows| rows > 0)
                    .ok_or("has too many results, or none")?;
                Ok(vec![vec![rows, 3], vec![1]])
            }
            _ => {
                let most = self.most;
                Err(format!("cannot select {most} of the boxes {boxes:?} with scores {scores:?}").into())
            }
        }
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::I32
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        // About twenty operations for each pair of a box and a selected one.
        20 * count(operands[1]) * self.most as u64
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let (boxes, scores) = (operands[0], operands[1]);
        let &[images, classes, length] = scores.shape() else {
            return;
        };
        let [rows, found] = results else { return };
        let rows = rows.values_mut();
        let (mut selected, mut place) = (Vec::new(), 0);
        for pair in 0..images * classes {
            let image = pair / classes;
            let of_image = &boxes.values()[image * length * 4..][..length * 4];
            self.select(
                of_image,
                &scores.values()[pair * length..][..length],
                &mut selected,
            );
            for &index in &selected {
                let row = [image, pair % classes, index].map(|number| T::from_f64(number as f64));
                rows[3 * place..3 * place + 3].copy_from_slice(&row);
                place += 1;
            }
        }
        found.values_mut()[0] = T::from_f64(place as f64);
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let classes = channels.min(5);
            let scores = activation(&[batch, classes, tokens]);
            let corners = activation(&[batch, tokens, 4]);
            // Widths and heights are positive.
            let centers = Operand {
                role: scores.role,
                ..positive(&[batch, tokens, 4])
            };
            for (op, boxes) in [
                (
                    Self {
                        most: tokens.min(20),
                        overlap: 0.3,
                        score: Some(-0.25),
                        centered: false,
                    },
                    corners,
                ),
                (
                    Self {
                        most: tokens,
                        overlap: 0.55,
                        score: None,
                        centered: true,
                    },
                    centers,
                ),
            ] {
                cases.push(op, vec![boxes.clone(), scores.clone()]);
                cases.push_result(1, op, vec![boxes, scores.clone()]);
            }
        });
    }

    /// Indices are exact.
    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The boxes and scores of ONNX's test `nonmaxsuppression_two_classes`.
    const CORNERS: [[f64; 4]; 6] = [
        [0.0, 0.0, 1.0, 1.0],
        [0.0, 0.1, 1.0, 1.1],
        [0.0, -0.1, 1.0, 0.9],
        [0.0, 10.0, 1.0, 11.0],
        [0.0, 10.1, 1.0, 11.1],
        [0.0, 100.0, 1.0, 101.0],
    ];
    const SCORES: [f64; 6] = [0.9, 0.75, 0.6, 0.95, 0.5, 0.3];

    fn eval(op: NonMaxSuppression, boxes: &[[f64; 4]], scores: Vec<f64>) -> [Vec<f64>; 2] {
        let classes = scores.len() / boxes.len();
        let boxes = Array::new([1, boxes.len(), 4], boxes.concat()).unwrap();
        let scores = Array::new([1, classes, scores.len() / classes], scores).unwrap();
        let results = op.eval(&[&boxes, &scores]).unwrap();
        [0, 1].map(|index| results[index].values().to_vec())
    }

    #[test]
    fn boxes_that_overlap_a_better_one_are_left_out() {
        let op = NonMaxSuppression {
            most: 2,
            overlap: 0.5,
            score: Some(0.0),
            centered: false,
        };
        let [rows, count] = eval(op, &CORNERS, [SCORES, SCORES].concat());
        assert_eq!(count, [4.0]);
        assert_eq!(rows, [0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0, 0.0, 1.0, 0.0]);
        let [rows, count] = eval(NonMaxSuppression { most: 5, ..op }, &CORNERS, SCORES.to_vec());
        assert_eq!(count, [3.0]);
        assert_eq!(rows[..9], [0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0]);
        assert!(rows[9..].iter().all(|&number| number == 0.0));
        // A score of the limit is not above it.
        let above = NonMaxSuppression {
            score: Some(0.5),
            ..op
        };
        let [rows, count] = eval(above, &CORNERS[3..], vec![0.5, 0.25, 0.75]);
        assert_eq!((rows[2], count[0]), (2.0, 1.0));
    }

    #[test]
    fn corners_may_be_in_any_order_and_boxes_around_their_centre() {
        let op = NonMaxSuppression {
            most: 6,
            overlap: 0.5,
            score: None,
            centered: false,
        };
        let [expected, _] = eval(op, &CORNERS, SCORES.to_vec());
        let flipped = CORNERS.map(|[a, b, c, d]| [c, b, a, d]);
        assert_eq!(eval(op, &flipped, SCORES.to_vec())[0], expected);
        let centers = CORNERS.map(|[a, b, c, d]| [(b + d) / 2.0, (a + c) / 2.0, d - b, c - a]);
        let centered = NonMaxSuppression { centered: true, ..op };
        assert_eq!(eval(centered, &centers, SCORES.to_vec())[0], expected);
    }

    #[test]
    fn equal_scores_are_ordered_and_nan_is_left_out() {
        let op = NonMaxSuppression {
            most: 3,
            overlap: 0.5,
            score: None,
            centered: false,
        };
        let apart = [0.0, 5.0, 10.0].map(|x| [0.0, x, 1.0, x + 1.0]);
        let [rows, count] = eval(op, &apart, vec![0.5, f64::NAN, 0.5]);
        assert_eq!(count, [2.0]);
        assert_eq!([rows[2], rows[5]], [0.0, 2.0]);
        assert!(op.shapes(&[&[1, 3, 4], &[1, 2, 4]]).is_err());
        assert!(
            NonMaxSuppression { most: 4, ..op }
                .shapes(&[&[1, 3, 4], &[1, 2, 3]])
                .is_err()
        );
    }
}
