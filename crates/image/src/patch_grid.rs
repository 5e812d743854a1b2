//! Packs images of any aspect ratio into byte images of one size, for NaFlex models
//! (<https://arxiv.org/abs/2502.14786>).
//!
//! An image of `rows × columns` patches of `p × p` pixels, at most P patches, becomes `u8 [P·p + 1, p, 3]`:
//!
//! 1. its patches in row-major order, one below the other
//! 2. zeros
//! 3. a row of pixels that begins with the [grid](PatchGrid)
//!
//! Patches can be extracted from it as from any image.

/// Number of bytes of a grid: rows, then columns, each a little-endian u16.
pub const BYTES: usize = 4;

/// Number of rows and columns of an image's patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchGrid {
    /// Number of rows of patches.
    pub rows: usize,
    /// Number of columns of patches.
    pub columns: usize,
}

impl PatchGrid {
    /// Reads the grid from the last row of a packed image of the given height and width.
    ///
    /// The image has at most `patches` patches. A grid that is empty or larger is clamped, as on a GPU. Returns `None`
    /// if the image is too short.
    pub fn read(image: &[u8], [height, width]: [usize; 2], patches: usize) -> Option<Self> {
        let at = image.get(first([height, width])..)?.get(..BYTES)?;
        let extent = |low: u8, high: u8| usize::from(u16::from_le_bytes([low, high]));
        let rows = extent(at[0], at[1]).min(patches).max(1);
        let columns = extent(at[2], at[3]).min(patches / rows).max(1);
        Some(Self { rows, columns })
    }

    /// Writes the grid to the beginning of `row`. Returns `None` if it does not fit.
    pub fn write(self, row: &mut [u8]) -> Option<()> {
        let [rows, columns] = [self.rows, self.columns].map(|n| u16::try_from(n).ok().map(u16::to_le_bytes));
        row.get_mut(..2)?.copy_from_slice(&rows?);
        row.get_mut(2..BYTES)?.copy_from_slice(&columns?);
        Some(())
    }

    /// Returns the number of patches.
    pub fn patches(self) -> usize {
        self.rows * self.columns
    }
}

/// Returns the byte offset of the grid in an image of the given height and width.
pub fn first([height, width]: [usize; 2]) -> usize {
    height.saturating_sub(1) * width * 3
}

/// Returns height and width of images with at most `patches` patches of `patch × patch` pixels. Returns `None` if the
/// grid does not fit.
pub fn image_size(patch: usize, patches: usize) -> Option<[usize; 2]> {
    // The last row must belong to no patch, and must have room for the grid.
    let fits = patch >= 2 && (1..=usize::from(u16::MAX)).contains(&patches);
    let height = patches.checked_mul(patch)?.checked_add(1)?;
    fits.then_some([height, patch])
}

/// Returns the maximum number of patches in an image of the given height and width.
pub fn most_patches([height, width]: [usize; 2]) -> usize {
    height.saturating_sub(1) / width.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_read_back_and_a_wrong_one_is_cut_to_fit() {
        let size = image_size(2, 300).unwrap();
        assert_eq!((size, most_patches(size)), ([601, 2], 300));
        let mut image = vec![0; 601 * 2 * 3];
        for ([rows, columns], expected) in [
            ([1, 300], [1, 300]),
            ([17, 17], [17, 17]),
            ([0, 0], [1, 1]),
            ([7, 0], [7, 1]),
            ([20, 20], [20, 15]),
            ([65_535, 9], [300, 1]),
        ] {
            let grid = PatchGrid { rows, columns };
            grid.write(&mut image[first(size)..]).unwrap();
            let read = PatchGrid::read(&image, size, 300).unwrap();
            assert_eq!([read.rows, read.columns], expected);
        }
        assert!(PatchGrid::read(&image[..1801], size, 300).is_none());
        assert!(
            PatchGrid {
                rows: 1 << 16,
                columns: 1
            }
            .write(&mut image)
            .is_none()
        );
        // The grid does not fit, or its row would belong to a patch.
        assert_eq!(
            [(1, 4), (16, 0), (16, 1 << 16)].map(|(p, n)| image_size(p, n)),
            [None; 3]
        );
    }
}
