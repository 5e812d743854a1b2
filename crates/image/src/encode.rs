//! Encoding of images as PNG files.

use crate::error::{Error, Result};
use crate::rgb_image::RgbImage;

/// Encodes the image as a PNG file.
///
/// # Errors
///
/// Returns [`Error::Argument`] if the image is empty or too large for the format.
pub fn encode_png(image: &RgbImage) -> Result<Vec<u8>> {
    encode(
        [image.width, image.height],
        (png::ColorType::Rgb, png::BitDepth::Eight),
        &image.data,
    )
}

/// Encodes values as a PNG file with 8 bits of grey per pixel, in rows from top to bottom.
///
/// # Errors
///
/// Returns [`Error::Argument`] if there are not `width × height` values, or if these are empty or too large for the format.
pub fn encode_gray_png(width: usize, height: usize, values: &[u8]) -> Result<Vec<u8>> {
    encode(
        [width, height],
        (png::ColorType::Grayscale, png::BitDepth::Eight),
        values,
    )
}

/// Encodes values as a PNG file with 16 bits of grey per pixel, in rows from top to bottom.
///
/// # Errors
///
/// Returns [`Error::Argument`] if there are not `width × height` values, or if these are empty or too large for the format.
pub fn encode_gray16_png(width: usize, height: usize, values: &[u16]) -> Result<Vec<u8>> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_be_bytes()).collect();
    encode(
        [width, height],
        (png::ColorType::Grayscale, png::BitDepth::Sixteen),
        &bytes,
    )
}

fn encode(size: [usize; 2], (color, depth): (png::ColorType, png::BitDepth), data: &[u8]) -> Result<Vec<u8>> {
    let wrong = |reason: &dyn std::fmt::Display| Error::argument("image", reason);
    let [width, height] = size.map(u32::try_from);
    let (width, height) = (width.map_err(|e| wrong(&e))?, height.map_err(|e| wrong(&e))?);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    let mut writer = encoder.write_header().map_err(|e| wrong(&e))?;
    writer.write_image_data(data).map_err(|e| wrong(&e))?;
    writer.finish().map_err(|e| wrong(&e))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Limits, decode};

    #[test]
    fn a_png_decodes_to_the_same_pixels() {
        let image = RgbImage::new(2, 1, vec![1, 2, 3, 250, 251, 252]).unwrap();
        let bytes = encode_png(&image).unwrap();
        assert_eq!(decode("x.png", &bytes, Limits::default()).unwrap(), image);
    }

    #[test]
    fn eight_bits_of_grey_are_equal_colours() {
        let bytes = encode_gray_png(3, 1, &[0, 7, 255]).unwrap();
        let image = decode("x.png", &bytes, Limits::default()).unwrap();
        assert_eq!(image.data, [0, 0, 0, 7, 7, 7, 255, 255, 255]);
        assert!(encode_gray_png(2, 2, &[0, 7, 255]).is_err());
    }

    #[test]
    fn sixteen_bits_of_grey_stay() {
        let values = [0, 1, 0x1234, 0xff00, 0x00ff, u16::MAX];
        let bytes = encode_gray16_png(3, 2, &values).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes))
            .read_info()
            .unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (3, 2));
        assert_eq!(
            (info.color_type, info.bit_depth),
            (png::ColorType::Grayscale, png::BitDepth::Sixteen)
        );
        let (pairs, _) = pixels.as_chunks();
        let read: Vec<u16> = pairs.iter().map(|&pair| u16::from_be_bytes(pair)).collect();
        assert_eq!(read, values);
        assert!(encode_gray16_png(3, 3, &values).is_err());
        assert!(encode_gray16_png(0, 0, &[]).is_err());
    }
}
