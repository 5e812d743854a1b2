//! Maps as images.

use ndarray::Array2;

use hipvit::error::{Error, Result};
use hipvit::image::RgbImage;

/// Colours from black over purple and orange to yellow, in even steps of lightness.
const HEAT: [[u8; 3]; 6] = [
    [4, 3, 20],
    [66, 10, 104],
    [147, 38, 103],
    [221, 81, 58],
    [252, 165, 10],
    [252, 255, 164],
];
const POSITIVE: [u8; 3] = [214, 30, 40];
const NEGATIVE: [u8; 3] = [30, 90, 220];

/// Returns the colour of a value between 0 and 1.
fn heat_colour(value: f32) -> [u8; 3] {
    let at = value.clamp(0.0, 1.0) * (HEAT.len() - 1) as f32;
    let below = (at as usize).min(HEAT.len() - 2);
    mix(HEAT[below], HEAT[below + 1], at - below as f32)
}

fn mix(from: [u8; 3], to: [u8; 3], share: f32) -> [u8; 3] {
    let channel = |i: usize| {
        let (from, to) = (f32::from(from[i]), f32::from(to[i]));
        (from + share * (to - from)).round() as u8
    };
    [channel(0), channel(1), channel(2)]
}

/// Draws `map`, one value per patch, over `image`. Brightness is proportional to the value, from 0 to the largest value.
///
/// # Errors
///
/// [`Error::Argument`] for an empty map.
pub fn heat(image: &RgbImage, map: &Array2<f32>) -> Result<RgbImage> {
    let largest = map.iter().fold(0.0, |m: f32, &v| m.max(v)).max(f32::MIN_POSITIVE);
    let values = enlarged(map, [image.height, image.width])?;
    Ok(painted(image, |pixel, index| {
        let value = values[index] / largest;
        mix(pixel, heat_colour(value), 0.25 + 0.5 * value)
    }))
}

/// Draws `map` alone, one pixel per value, from black for 0 to yellow for the largest value.
///
/// # Errors
///
/// [`Error::Argument`] for an empty map.
pub fn colours(map: &Array2<f32>) -> Result<RgbImage> {
    let largest = map.iter().fold(0.0, |m: f32, &v| m.max(v)).max(f32::MIN_POSITIVE);
    let data = map
        .iter()
        .flat_map(|value| heat_colour(value / largest))
        .collect();
    Ok(RgbImage::new(map.ncols(), map.nrows(), data)?)
}

/// Draws `map`, one value per pixel or per patch, over the greys of `image`. Positive values are red, negative values blue, at full
/// strength from the 99th percentile of the absolute values on.
///
/// # Errors
///
/// [`Error::Argument`] for an empty map.
pub fn signed(image: &RgbImage, map: &Array2<f64>) -> Result<RgbImage> {
    let map = map.mapv(|v| v as f32);
    let values = if map.dim() == (image.height, image.width) {
        map.iter().copied().collect()
    } else {
        nearest(&map, [image.height, image.width])?
    };
    let mut sizes: Vec<f32> = map.iter().map(|v| v.abs()).collect();
    sizes.sort_by(f32::total_cmp);
    let strong = sizes
        .get(sizes.len() * 99 / 100)
        .copied()
        .unwrap_or(0.0)
        .max(f32::MIN_POSITIVE);
    Ok(painted(image, |[r, g, b], index| {
        let grey = 0.3 * f32::from(r) + 0.59 * f32::from(g) + 0.11 * f32::from(b);
        let pale = [(155.0 + 0.35 * grey) as u8; 3];
        let value = (values[index] / strong).clamp(-1.0, 1.0);
        mix(pale, if value > 0.0 { POSITIVE } else { NEGATIVE }, value.abs())
    }))
}

fn painted(image: &RgbImage, colour: impl Fn([u8; 3], usize) -> [u8; 3]) -> RgbImage {
    let (pixels, _) = image.data.as_chunks::<3>();
    let data = pixels.iter().enumerate().flat_map(|(i, &pixel)| colour(pixel, i));
    RgbImage {
        width: image.width,
        height: image.height,
        data: data.collect(),
    }
}

fn empty() -> Error {
    Error::argument("map", "is empty")
}

/// Interpolates linearly between the centres of the patches, row by row.
fn enlarged(map: &Array2<f32>, [height, width]: [usize; 2]) -> Result<Vec<f32>> {
    let (rows, columns) = map.dim();
    if map.is_empty() {
        return Err(empty());
    }
    let at = |pixel: usize, pixels: usize, cells: usize| {
        let centre = (pixel as f32 + 0.5) * cells as f32 / pixels as f32 - 0.5;
        let centre = centre.clamp(0.0, (cells - 1) as f32);
        let first = centre as usize;
        (first, (first + 1).min(cells - 1), centre - first as f32)
    };
    let mut values = Vec::with_capacity(height * width);
    for y in 0..height {
        let (top, bottom, down) = at(y, height, rows);
        for x in 0..width {
            let (left, right, along) = at(x, width, columns);
            let row = |r: usize| map[[r, left]] * (1.0 - along) + map[[r, right]] * along;
            values.push(row(top) * (1.0 - down) + row(bottom) * down);
        }
    }
    Ok(values)
}

fn nearest(map: &Array2<f32>, [height, width]: [usize; 2]) -> Result<Vec<f32>> {
    let (rows, columns) = map.dim();
    if map.is_empty() {
        return Err(empty());
    }
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
    Ok(pixels
        .map(|(y, x)| map[[y * rows / height, x * columns / width]])
        .collect())
}

/// Enlarges each pixel to a square of `factor` pixels.
pub fn enlarge(image: &RgbImage, factor: usize) -> RgbImage {
    let factor = factor.max(1);
    let (pixels, _) = image.data.as_chunks::<3>();
    let mut data = Vec::with_capacity(image.data.len() * factor * factor);
    for row in pixels.chunks_exact(image.width) {
        let wide: Vec<u8> = row
            .iter()
            .flat_map(|pixel| std::iter::repeat_n(pixel, factor))
            .flatten()
            .copied()
            .collect();
        for _ in 0..factor {
            data.extend_from_slice(&wide);
        }
    }
    RgbImage {
        width: image.width * factor,
        height: image.height * factor,
        data,
    }
}

/// Arranges images of the same size in rows, with a margin of 2 pixels between them.
///
/// # Errors
///
/// [`Error::Argument`] if there are no images, or if their sizes differ.
pub fn tiles(images: &[RgbImage], columns: usize) -> Result<RgbImage> {
    const MARGIN: usize = 2;
    let [first, ..] = images else {
        return Err(Error::argument("tiles", "there is no picture"));
    };
    if images
        .iter()
        .any(|i| (i.width, i.height) != (first.width, first.height))
    {
        return Err(Error::argument("tiles", "the pictures differ in size"));
    }
    let columns = columns.clamp(1, images.len());
    let (step_x, step_y) = (first.width + MARGIN, first.height + MARGIN);
    let width = columns * step_x - MARGIN;
    let height = images.len().div_ceil(columns) * step_y - MARGIN;
    let mut data = vec![255; width * height * 3];
    for (i, image) in images.iter().enumerate() {
        let (left, top) = (i % columns * step_x, i / columns * step_y);
        for (y, row) in image.data.chunks_exact(image.width * 3).enumerate() {
            let at = ((top + y) * width + left) * 3;
            data[at..at + row.len()].copy_from_slice(row);
        }
    }
    Ok(RgbImage::new(width, height, data)?)
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn enlarging_keeps_the_centres_and_is_linear_between_them() {
        // The weights are powers of two, so nothing is rounded.
        let map = array![[0.0, 4.0]];
        let wide = enlarged(&map, [1, 4]).unwrap();
        assert_eq!(wide, [0.0, 1.0, 3.0, 4.0]);
        assert!(enlarged(&Array2::zeros((0, 0)), [2, 2]).is_err());
    }

    #[test]
    fn colours_go_from_the_darkest_to_the_brightest() {
        let picture = colours(&array![[0.0], [0.5]]).unwrap();
        assert_eq!((picture.width, picture.height), (1, 2));
        assert_eq!(picture.data, [HEAT[0], HEAT[5]].concat());
        assert!(colours(&Array2::zeros((0, 0))).is_err());
    }

    #[test]
    fn positive_values_are_red_and_negative_ones_blue() {
        let image = RgbImage::new(2, 1, vec![0; 6]).unwrap();
        let picture = signed(&image, &array![[1.0, -1.0]]).unwrap();
        assert_eq!(picture.data, [POSITIVE, NEGATIVE].concat());
    }

    #[test]
    fn enlarged_pixels_are_squares() {
        let image = RgbImage::new(2, 1, vec![1, 2, 3, 4, 5, 6]).unwrap();
        let large = enlarge(&image, 2);
        assert_eq!((large.width, large.height), (4, 2));
        assert_eq!(large.data, [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6].repeat(2));
        assert_eq!(enlarge(&image, 1), image);
    }

    #[test]
    fn tiles_have_a_margin_between_them() {
        let image = |v| RgbImage::new(1, 1, vec![v; 3]).unwrap();
        let picture = tiles(&[image(1), image(2), image(3)], 2).unwrap();
        assert_eq!((picture.width, picture.height), (4, 4));
        assert_eq!(picture.data[3 * 3..3 * 4], [2; 3]);
        assert_eq!(picture.data[3 * 12..3 * 13], [3; 3]);
    }
}
