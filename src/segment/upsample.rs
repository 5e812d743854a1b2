//! Bilinear interpolation of logits, as PyTorch's `interpolate` does it without aligned corners and without antialiasing.

use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayView2, Axis};

/// Weights of two neighbours for an element of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tap {
    before: usize,
    after: usize,
    /// Share of the second.
    share: f32,
}

/// Returns the taps of the first `kept` of `to` elements that are interpolated from `from` elements.
fn taps(from: usize, to: usize, kept: usize) -> Vec<Tap> {
    let (scale, last) = (from as f64 / to as f64, from.saturating_sub(1));
    let tap = |index: usize| {
        let place = ((index as f64 + 0.5) * scale - 0.5).max(0.0);
        let before = (place as usize).min(last);
        Tap {
            before,
            after: (before + 1).min(last),
            share: (place - before as f64) as f32,
        }
    };
    (0..kept).map(tap).collect()
}

/// Interpolates a map to `[height, width]`, and returns the first rows and columns of the result, as many as `kept` says.
pub(super) fn resized(
    map: ArrayView2<'_, f32>,
    [height, width]: [usize; 2],
    kept: [usize; 2],
) -> Array2<f32> {
    let (rows, columns) = map.dim();
    let (down, across) = (taps(rows, height, kept[0]), taps(columns, width, kept[1]));
    let mut result = Array2::zeros(kept);
    let lines = result.axis_iter_mut(Axis(0)).into_par_iter();
    lines.zip(down).for_each(|(mut line, of_row)| {
        let [above, below] = [of_row.before, of_row.after].map(|row| map.row(row));
        for (value, tap) in line.iter_mut().zip(&across) {
            let [above, below] =
                [above, below].map(|row| (1.0 - tap.share) * row[tap.before] + tap.share * row[tap.after]);
            *value = (1.0 - of_row.share) * above + of_row.share * below;
        }
    });
    result
}

#[cfg(test)]
mod tests {
    use ndarray::{array, s};

    use super::*;

    /// Expected values are from `torch.nn.functional.interpolate(mode="bilinear", align_corners=False)`.
    #[test]
    fn maps_are_interpolated_as_pytorch_does() {
        let map = array![[0.0, 1.0, 4.0], [8.0, 2.0, -6.0]];
        let larger = resized(map.view(), [3, 5], [3, 5]);
        let expected = [
            [0.0, 0.4, 1.0, 2.8, 4.0],
            [4.0, 3.0, 1.5, 0.0, -1.0],
            [8.0, 5.6, 2.0, -2.8, -6.0],
        ];
        for (found, expected) in larger.iter().zip(expected.as_flattened()) {
            assert!((found - expected).abs() < 2e-6, "{found}, expected {expected}");
        }
        let smaller = resized(map.view(), [1, 2], [1, 2]);
        for (found, expected) in smaller.iter().zip([3.375, -0.375]) {
            assert!((found - expected).abs() < 2e-6, "{found}, expected {expected}");
        }
        assert_eq!(resized(map.view(), [3, 5], [2, 4]), larger.slice(s![..2, ..4]));
    }
}
