//! Masks of an image's pixels.

use ndarray::Array2;

/// Mask of an object, of the size of its image.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mask {
    /// Overlap with the object that the model predicts, as intersection over union. About 0 to 1.
    pub score: f32,
    /// True for the pixels of the object, `[height, width]`.
    pub pixels: Array2<bool>,
}

impl Mask {
    /// Returns the number of pixels of the object.
    pub fn area(&self) -> usize {
        self.pixels.iter().filter(|&&pixel| pixel).count()
    }

    /// Returns left, top, right and bottom of the box around the object. The pixels of the column `right` and of the row `bottom` are no
    /// longer in it. `None` for a mask without pixels.
    pub fn bounding_box(&self) -> Option<[usize; 4]> {
        let mut found = None;
        for ((row, column), _) in self.pixels.indexed_iter().filter(|&(_, &pixel)| pixel) {
            let [left, top, right, bottom] = found.unwrap_or([column, row, column + 1, row + 1]);
            found = Some([
                left.min(column),
                top.min(row),
                right.max(column + 1),
                bottom.max(row + 1),
            ]);
        }
        found
    }

    /// Returns the lengths of runs of equal pixels, column by column, as COCO's uncompressed RLE has them. The first run is of pixels
    /// outside of the object, and may be empty.
    pub fn run_lengths(&self) -> Vec<usize> {
        let (mut runs, mut last) = (vec![0], false);
        for &pixel in self.pixels.t() {
            match runs.last_mut() {
                Some(run) if pixel == last => *run += 1,
                _ => runs.push(1),
            }
            last = pixel;
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    fn mask(pixels: Array2<bool>) -> Mask {
        Mask { score: 0.5, pixels }
    }

    /// The run lengths are those of transformers' `_mask_to_rle`.
    #[test]
    fn masks_have_an_area_a_box_and_run_lengths() {
        let found = mask(array![
            [false, false, true, false],
            [false, true, true, false],
            [false, false, false, false]
        ]);
        assert_eq!(found.area(), 3);
        assert_eq!(found.bounding_box(), Some([1, 0, 3, 2]));
        assert_eq!(found.run_lengths(), [4, 1, 1, 2, 4]);
        assert_eq!(
            mask(array![[true, false], [true, true]]).run_lengths(),
            [0, 2, 1, 1]
        );
        let empty = mask(array![[false, false]]);
        assert_eq!(
            (empty.area(), empty.bounding_box(), empty.run_lengths()),
            (0, None, vec![2])
        );
    }
}
