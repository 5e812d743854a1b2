//! Maps: a number for each pixel of an image, as PNG files store them.

use std::io::Cursor;
use std::path::Path;

use hipvit_files::regular_file;
use png::{BitDepth, ColorType, Decoder, Transformations};

use crate::error::{Error, Result};

/// A number for each pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Map {
    /// Height and width.
    pub size: [usize; 2],
    /// Numbers, row by row.
    pub values: Vec<u16>,
}

impl Map {
    /// Reads a PNG file with one number per pixel: shades of grey of up to 16 bits, or indices of a palette.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Dataset`] for a file of another form, and [`Error::Io`] if it cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = regular_file::read(path).map_err(|source| Error::io(path, source))?;
        let invalid = |error: png::DecodingError| Error::dataset(path, format!("is no PNG file: {error}"));
        let mut decoder = Decoder::new(Cursor::new(&bytes[..]));
        decoder.set_transformations(Transformations::IDENTITY);
        let mut reader = decoder.read_info().map_err(invalid)?;
        let info = reader.info();
        let (color, depth) = (info.color_type, info.bit_depth);
        let [height, width] = [info.height, info.width].map(|side| side as usize);
        if !matches!(color, ColorType::Grayscale | ColorType::Indexed) {
            let reason =
                "has colours, but a map has one number per pixel. Write it in shades of grey of 8 or 16 bits";
            return Err(Error::dataset(path, reason));
        }
        let len = reader.output_buffer_size();
        let mut data = vec![0; len.ok_or_else(|| Error::dataset(path, "is too large"))?];
        let frame = reader.next_frame(&mut data).map_err(invalid)?;
        let rows = data.chunks_exact(frame.line_size.max(1)).take(height);
        let values = rows.flat_map(|row| (0..width).map(move |column| sample(row, column, depth)));
        Ok(Self {
            size: [height, width],
            values: values.collect(),
        })
    }

    /// Reads the map of an image of this height and width.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Dataset`] for a map of another size, and the errors of [`Self::open`].
    pub fn of_image(path: &Path, size: [usize; 2]) -> Result<Self> {
        let map = Self::open(path)?;
        if map.size == size {
            return Ok(map);
        }
        let [[rows, columns], [height, width]] = [map.size, size];
        let reason = format!("has {rows}×{columns} pixels, but its image {height}×{width}");
        Err(Error::dataset(path, reason))
    }

    /// Returns the map with the nearest pixel for each of another size.
    #[must_use]
    pub fn resized(&self, [height, width]: [usize; 2]) -> Self {
        let [rows, columns] = self.size;
        // The pixel that has the centre of the new one.
        let nearest = |index: usize, from: usize, to: usize| (2 * index + 1) * from / (2 * to);
        let pixels = (0..height).flat_map(|row| {
            let start = nearest(row, rows, height) * columns;
            (0..width).map(move |column| start + nearest(column, columns, width))
        });
        Self {
            size: [height, width],
            values: pixels.map(|pixel| self.values[pixel]).collect(),
        }
    }
}

/// Returns a sample of a row.
fn sample(row: &[u8], column: usize, depth: BitDepth) -> u16 {
    let bits = depth as usize;
    if bits == 16 {
        return u16::from_be_bytes([row[2 * column], row[2 * column + 1]]);
    }
    let first = column * bits;
    let shift = 8 - bits - first % 8;
    u16::from(row[first / 8] >> shift) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn map(color: ColorType, depth: BitDepth, size: [u32; 2], data: &[u8]) -> Result<Map> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.png");
        let mut encoder = png::Encoder::new(fs::File::create(&path).unwrap(), size[1], size[0]);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette(vec![9; 3 * 4]);
        }
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        Map::open(&path)
    }

    #[test]
    fn numbers_are_those_in_the_file() {
        let grey = ColorType::Grayscale;
        let sixteen = map(grey, BitDepth::Sixteen, [1, 2], &[0x12, 0x34, 0xff, 0xff]).unwrap();
        assert_eq!(
            (sixteen.size, &sixteen.values[..]),
            ([1, 2], &[0x1234, 0xffff][..])
        );
        let eight = map(grey, BitDepth::Eight, [2, 1], &[3, 250]).unwrap();
        assert_eq!((eight.size, &eight.values[..]), ([2, 1], &[3, 250][..]));
        // Rows of five samples end within a byte.
        let two = map(
            ColorType::Indexed,
            BitDepth::Two,
            [2, 5],
            &[0b0001_1011, 0b1100_0000, 0, 0b0100_0000],
        );
        assert_eq!(two.unwrap().values, [0, 1, 2, 3, 3, 0, 0, 0, 0, 1]);
        let error = map(ColorType::Rgb, BitDepth::Eight, [1, 1], &[1, 2, 3]).unwrap_err();
        assert!(error.to_string().contains("has colours"), "{error}");
    }

    #[test]
    fn another_size_has_the_nearest_pixels() {
        let map = Map {
            size: [2, 3],
            values: vec![1, 2, 3, 4, 5, 6],
        };
        assert_eq!(map.resized([2, 3]), map);
        assert_eq!(map.resized([4, 3]).values, [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6]);
        assert_eq!(map.resized([1, 1]).values, [5]);
    }

    #[test]
    fn files_of_other_forms_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.png");
        fs::write(&path, b"no PNG").unwrap();
        let error = Map::open(&path).unwrap_err().to_string();
        assert!(
            error.contains("map.png") && error.contains("no PNG file"),
            "{error}"
        );
        let mut encoder = png::Encoder::new(fs::File::create(&path).unwrap(), 2, 1);
        encoder.set_color(ColorType::Grayscale);
        encoder.write_header().unwrap().write_image_data(&[1, 2]).unwrap();
        let error = Map::of_image(&path, [3, 2]).unwrap_err().to_string();
        assert!(error.contains("1×2 pixels, but its image 3×2"), "{error}");
    }
}
