//! The division of an image into tiles of one size (SmolVLM, Idefics3).

use crate::Result;
use crate::resize::{Filter, resize};
use crate::rgb_image::RgbImage;

/// Maximum length of a side in the library, whatever the configuration says.
const MAX_SIDE: usize = 4096;

/// A rule that divides images into square tiles, and adds the image as a whole in the size of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// First resize.
    pub(super) first: FirstResize,
    /// Side of a tile, in pixels.
    pub(super) tile: usize,
    pub(super) filter: Filter,
    /// False if there is only the image as a whole.
    pub(super) splits: bool,
}

/// Resize of an image before it is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstResize {
    /// The longer edge to this length. The other edge is proportional and even.
    Longest(usize),
    /// To this height and width.
    Exact([usize; 2]),
}

/// Tiles of an image.
#[derive(Clone, Debug)]
pub struct Tiles {
    /// Number of rows. 0 if the image is one tile.
    pub rows: usize,
    /// Number of columns. 0 if the image is one tile.
    pub columns: usize,
    /// The tiles row by row, then the image as a whole.
    pub images: Vec<RgbImage>,
}

impl Tiling {
    /// Returns the side of a tile, in pixels.
    pub fn tile(&self) -> usize {
        self.tile
    }

    /// Returns the maximum number of tiles of an image, with the image as a whole.
    pub fn max_tiles(&self) -> usize {
        let [rows, columns] = self.largest_grid();
        rows * columns + 1
    }

    /// Returns the maximum number of rows and columns of tiles, `[0, 0]` if images are not divided.
    pub fn largest_grid(&self) -> [usize; 2] {
        if !self.splits {
            return [0, 0];
        }
        let size = match self.first {
            FirstResize::Exact(size) => size,
            // The shorter edge is made even.
            FirstResize::Longest(longest) => [longest.min(MAX_SIDE).next_multiple_of(2); 2],
        };
        let [rows, columns] = whole_tiles(size, self.tile).map(|side| side / self.tile);
        if rows * columns > 1 {
            [rows, columns]
        } else {
            [0, 0]
        }
    }

    /// Divides an image.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) for an image without pixels.
    pub fn split(&self, image: &RgbImage) -> Result<Tiles> {
        let side = self.tile;
        let whole = |image: &RgbImage| resize(image, side, side, self.filter);
        let (height, width) = self.first.target(image.height, image.width);
        let first = resize(image, width, height, self.filter)?;
        if !self.splits {
            return Ok(Tiles {
                rows: 0,
                columns: 0,
                images: vec![whole(&first)?],
            });
        }
        let [height, width] = whole_tiles([height, width], side);
        let enlarged = resize(&first, width, height, self.filter)?;
        if height <= side && width <= side {
            return Ok(Tiles {
                rows: 0,
                columns: 0,
                images: vec![enlarged],
            });
        }
        let (rows, columns) = (height / side, width / side);
        let mut images = Vec::with_capacity(rows * columns + 1);
        for row in 0..rows {
            for column in 0..columns {
                let mut data = Vec::with_capacity(side * side * 3);
                for line in row * side..(row + 1) * side {
                    let start = (line * width + column * side) * 3;
                    data.extend_from_slice(&enlarged.data[start..start + side * 3]);
                }
                images.push(RgbImage {
                    width: side,
                    height: side,
                    data,
                });
            }
        }
        images.push(whole(&enlarged)?);
        Ok(Tiles {
            rows,
            columns,
            images,
        })
    }
}

impl FirstResize {
    /// Returns height and width of an image of `height × width` after the resize. Quotients are those of the library, whose last bit may decide.
    fn target(self, height: usize, width: usize) -> (usize, usize) {
        let longest = match self {
            Self::Exact([height, width]) => return (height, width),
            Self::Longest(longest) => longest,
        };
        let ratio = width as f64 / height as f64;
        let (mut height, mut width) = if width >= height {
            let height = (longest as f64 / ratio) as usize;
            (height + height % 2, longest)
        } else {
            let width = (longest as f64 * ratio) as usize;
            (longest, width + width % 2)
        };
        (height, width) = (height.max(1), width.max(1));
        let ratio = width as f64 / height as f64;
        if width >= height && width > MAX_SIDE {
            (height, width) = ((MAX_SIDE as f64 / ratio) as usize, MAX_SIDE);
        } else if height > width && height > MAX_SIDE {
            (height, width) = (MAX_SIDE, (MAX_SIDE as f64 * ratio) as usize);
        }
        (height.max(1), width.max(1))
    }
}

/// Returns height and width in whole tiles.
fn whole_tiles([height, width]: [usize; 2], side: usize) -> [usize; 2] {
    let ratio = width as f64 / height as f64;
    let whole = |length: usize| length.div_ceil(side) * side;
    if width >= height {
        let width = whole(width);
        [whole((width as f64 / ratio) as usize), width]
    } else {
        let height = whole(height);
        [height, whole((height as f64 * ratio) as usize)]
    }
}
