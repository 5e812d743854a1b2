//! Positions of pixels and anchors of queries in RT-DETR.

/// Width and height of the anchors of the first level, relative to the image.
const ANCHOR: f64 = 0.05;
/// Anchors closer to an edge than this are left out.
const MARGIN: f64 = 0.01;
/// Logit of an anchor that is left out. The library has the largest number of the dtype. The sigmoid of both is 1.
const LEFT_OUT: f32 = 1e4;

/// Returns the position of each pixel of a map, `[rows · columns, dim]`: sines and cosines of its row, then of its column.
pub(super) fn sinusoidal([rows, columns]: [usize; 2], dim: usize, temperature: f64) -> Vec<f32> {
    let count = dim / 4;
    let frequencies = (0..count).map(|index| temperature.powf(-(index as f64) / count as f64));
    let frequencies: Vec<f64> = frequencies.collect();
    let mut values = Vec::with_capacity(rows * columns * dim);
    for row in 0..rows {
        for column in 0..columns {
            for place in [row, column] {
                let angles = frequencies.iter().map(|frequency| place as f64 * frequency);
                values.extend(angles.clone().map(|angle| angle.sin() as f32));
                values.extend(angles.map(|angle| angle.cos() as f32));
            }
        }
    }
    values
}

/// Boxes of all pixels of all levels that queries may start from.
pub(super) struct Anchors {
    /// Logits of `x, y, width, height` of each box.
    pub(super) logits: Vec<f32>,
    /// 1 for each box in use, 0 for one that is left out.
    pub(super) valid: Vec<f32>,
}

impl Anchors {
    pub(super) fn new(levels: &[[usize; 2]]) -> Self {
        let (mut logits, mut valid) = (Vec::new(), Vec::new());
        for (level, &[rows, columns]) in levels.iter().enumerate() {
            let size = ANCHOR * 2f64.powi(level as i32);
            for index in 0..rows * columns {
                let centre = |place: usize, extent: usize| (place as f64 + 0.5) / extent as f64;
                let of_box = [
                    centre(index % columns, columns),
                    centre(index / columns, rows),
                    size,
                    size,
                ];
                let is_valid = of_box.iter().all(|&x| x > MARGIN && x < 1.0 - MARGIN);
                valid.push(if is_valid { 1.0 } else { 0.0 });
                let logit = |x: f64| {
                    if is_valid {
                        (x / (1.0 - x)).ln() as f32
                    } else {
                        LEFT_OUT
                    }
                };
                logits.extend(of_box.map(logit));
            }
        }
        Self { logits, valid }
    }
}
