//! Crops, borders, flips and filled rectangles.

use hipvit_image::RgbImage;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Content of a border, by torchvision's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaddingMode {
    /// One colour.
    #[default]
    Constant,
    /// The nearest pixel of the image.
    Edge,
    /// The image mirrored, without repeating its edge.
    Reflect,
    /// The image mirrored, with its edge repeated.
    Symmetric,
}

/// Cuts out a rectangle. Pixels outside of the image are black.
pub(super) fn crop(image: &RgbImage, [top, left]: [i64; 2], [height, width]: [usize; 2]) -> Result<RgbImage> {
    let mut output = RgbImage::new(width, height, vec![0; width * height * 3])?;
    // Columns of the output that are inside of the image.
    let first = left.saturating_neg().clamp(0, width as i64) as usize;
    let last = (image.width as i64 - left).clamp(first as i64, width as i64) as usize;
    for (row, line) in output.data.chunks_exact_mut(width * 3).enumerate() {
        let y = top + row as i64;
        if (0..image.height as i64).contains(&y) && first < last {
            let start = y as usize * image.width + (left + first as i64) as usize;
            let source = &image.data[start * 3..(start + last - first) * 3];
            line[first * 3..last * 3].copy_from_slice(source);
        }
    }
    Ok(output)
}

/// Adds a border of `[left, top, right, bottom]` pixels.
pub(super) fn pad(
    image: &RgbImage,
    [left, top, right, bottom]: [usize; 4],
    mode: PaddingMode,
    fill: [u8; 3],
) -> Result<RgbImage> {
    let columns = sources(image.width, left, right, mode)?;
    let rows = sources(image.height, top, bottom, mode)?;
    let (width, height) = (columns.len(), rows.len());
    let pixels = image.data.as_chunks::<3>().0;
    let mut data = Vec::with_capacity(width * height * 3);
    for &row in &rows {
        let pixel = |&column: &Option<usize>| {
            let (row, column) = (row?, column?);
            Some(pixels[row * image.width + column])
        };
        data.extend(columns.iter().flat_map(|column| pixel(column).unwrap_or(fill)));
    }
    Ok(RgbImage { width, height, data })
}

/// Returns the source position of each padded position. `None` is the constant colour.
fn sources(length: usize, before: usize, after: usize, mode: PaddingMode) -> Result<Vec<Option<usize>>> {
    let longest = before.max(after);
    let limit = match mode {
        PaddingMode::Constant | PaddingMode::Edge => usize::MAX,
        PaddingMode::Reflect => length - 1,
        PaddingMode::Symmetric => length,
    };
    if longest > limit {
        let reason = format!("a border of {longest} pixels cannot mirror a side of {length} pixels");
        return Err(Error::argument("padding", reason));
    }
    let source = |at: usize| {
        let inside = (before..before + length).contains(&at);
        let (low, high) = (
            before.saturating_sub(at),
            (at + 1).saturating_sub(before + length),
        );
        match mode {
            _ if inside => Some(at - before),
            PaddingMode::Constant => None,
            PaddingMode::Edge => Some(if low > 0 { 0 } else { length - 1 }),
            PaddingMode::Reflect => Some(if low > 0 { low } else { length - 1 - high }),
            PaddingMode::Symmetric => Some(if low > 0 { low - 1 } else { length - high }),
        }
    };
    Ok((0..before + length + after).map(source).collect())
}

pub(super) fn flip_horizontally(image: &mut RgbImage) {
    for row in image.data.chunks_exact_mut(image.width.max(1) * 3) {
        row.as_chunks_mut::<3>().0.reverse();
    }
}

pub(super) fn flip_vertically(image: &mut RgbImage) {
    let row = image.width * 3;
    for upper in 0..image.height / 2 {
        let (above, below) = image.data.split_at_mut((image.height - 1 - upper) * row);
        above[upper * row..(upper + 1) * row].swap_with_slice(&mut below[..row]);
    }
}

/// Fills the part of a rectangle that is inside of the image.
pub(super) fn fill(
    image: &mut RgbImage,
    [top, left]: [usize; 2],
    [height, width]: [usize; 2],
    color: [u8; 3],
) {
    let stride = image.width.max(1) * 3;
    for row in image.data.chunks_exact_mut(stride).skip(top).take(height) {
        for pixel in row.as_chunks_mut::<3>().0.iter_mut().skip(left).take(width) {
            *pixel = color;
        }
    }
}
