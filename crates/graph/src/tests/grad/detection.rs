//! Derivatives of what detectors consist of.

use super::{check, check_given, noise};
use crate::array::Array;
use crate::op::detection_loss::LossWeights;
use crate::op::{AveragePool, DeformableAttention, DetectionLoss, GatherElements, MaxPool, PointSampling};

#[test]
fn sampled_points() {
    let op = |sampling| DeformableAttention {
        heads: 2,
        levels: vec![[4, 5], [2, 3]],
        points: 2,
        scale: 0.25,
        sampling,
    };
    let shapes: [&[usize]; 4] = [&[2, 26, 6], &[2, 3, 4], &[2, 3, 16], &[2, 3, 8]];
    check(op(PointSampling::Linear), &shapes, &[0, 1, 2, 3]);
    check(op(PointSampling::Discrete), &shapes, &[0, 1, 2, 3]);
}

#[test]
fn pools_and_elements_by_index() {
    let max = MaxPool {
        kernel: [3, 2],
        stride: [2, 1],
        dilation: [1, 2],
        padding: [[1, 1], [1, 0]],
        ceil: true,
    };
    check(max, &[&[2, 6, 5, 3]], &[0]);
    let mean = AveragePool {
        kernel: [2, 3],
        stride: [2, 3],
        dilation: [1; 2],
        padding: [[0; 2]; 2],
        ceil: true,
        count_padding: false,
    };
    check(mean, &[&[2, 4, 6, 3]], &[0]);
    let indices = Array::new([2, 3, 2], [4.0, 0.0, 4.0, 1.0, 2.0, -1.0].repeat(2)).unwrap();
    let shapes: [&[usize]; 2] = [&[2, 5, 2], &[2, 3, 2]];
    check_given(GatherElements { axis: 1 }, &shapes, &[0], &[(1, indices)]);
}

/// Without the loss of the classes: overlaps and probabilities count as constants there.
#[test]
fn distances_and_overlaps_of_boxes() {
    let default = DetectionLoss::default();
    let op = DetectionLoss {
        layers: 2,
        weights: LossWeights {
            classes: 0.0,
            ..default.weights
        },
        ..default
    };
    let positive = |shape: &[usize], seed| {
        let values = noise(shape.iter().product(), seed);
        Array::new(shape, values.into_iter().map(|x| 0.5 + 0.4 * x).collect()).unwrap()
    };
    let boxes = positive(&[2, 8, 4], 3);
    let mut targets = positive(&[2, 3, 5], 4);
    for (row, class) in targets
        .values_mut()
        .chunks_exact_mut(5)
        .zip([0.0, 4.0, 2.0, 1.0, -1.0, 3.0])
    {
        row[0] = class;
    }
    let shapes: [&[usize]; 3] = [&[2, 8, 5], &[2, 8, 4], &[2, 3, 5]];
    check_given(op, &shapes, &[0, 1], &[(1, boxes), (2, targets)]);
}
