//! Overlap of boxes, with its derivative. A box is `x, y, width, height` of its centre and its sides.

/// Overlap of a box with a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overlap {
    /// Intersection over union.
    pub(super) iou: f64,
    /// Generalised intersection over union, <https://arxiv.org/abs/1902.09630>.
    pub(super) giou: f64,
    /// Derivative of `giou` by the box.
    pub(super) d_giou: [f64; 4],
}

impl Overlap {
    pub(super) fn new(of_box: [f64; 4], target: [f64; 4]) -> Self {
        let axes =
            [0, 1].map(|axis| Axis::new([of_box[axis], of_box[2 + axis]], [target[axis], target[2 + axis]]));
        let [x, y] = &axes;
        let intersection = x.shared.max(0.0) * y.shared.max(0.0);
        let union = of_box[2] * of_box[3] + target[2] * target[3] - intersection;
        let enclosing = x.enclosing * y.enclosing;
        let iou = intersection / union;
        // giou = I/U − 1 + U/E with U = A + A' − I.
        let by_area = 1.0 / enclosing - iou / union;
        let by_intersection = 1.0 / union - by_area;
        let by_enclosing = -union / (enclosing * enclosing);
        let mut d_giou = [0.0; 4];
        for (axis, other) in [(0, 1), (1, 0)] {
            let ends = [0, 1].map(|end| {
                let shared = if axes[axis].shared >= 0.0 {
                    axes[axis].d_shared[end] * axes[other].shared.max(0.0)
                } else {
                    0.0
                };
                by_intersection * shared + by_enclosing * axes[axis].d_enclosing[end] * axes[other].enclosing
            });
            d_giou[axis] = ends[0] + ends[1];
            d_giou[2 + axis] = 0.5 * (ends[1] - ends[0]) + by_area * of_box[2 + other];
        }
        Self {
            iou,
            giou: iou - 1.0 + union / enclosing,
            d_giou,
        }
    }
}

/// Extents of a box and a target along an axis.
struct Axis {
    /// Length of the intersection. Negative if there is none.
    shared: f64,
    /// Length of the smallest interval around both.
    enclosing: f64,
    /// Derivatives by the first and the last place of the box. As in PyTorch, equal places share a derivative.
    d_shared: [f64; 2],
    d_enclosing: [f64; 2],
}

impl Axis {
    fn new(of_box: [f64; 2], target: [f64; 2]) -> Self {
        let ends = |[centre, side]: [f64; 2]| [centre - 0.5 * side, centre + 0.5 * side];
        let ([first, last], [target_first, target_last]) = (ends(of_box), ends(target));
        let share = |is_own: bool, is_equal: bool| {
            if is_equal {
                0.5
            } else {
                f64::from(u8::from(is_own))
            }
        };
        let (starts_equal, ends_equal) = (first == target_first, last == target_last);
        Self {
            shared: last.min(target_last) - first.max(target_first),
            enclosing: last.max(target_last) - first.min(target_first),
            d_shared: [
                -share(first > target_first, starts_equal),
                share(last < target_last, ends_equal),
            ],
            d_enclosing: [
                -share(first < target_first, starts_equal),
                share(last > target_last, ends_equal),
            ],
        }
    }
}
