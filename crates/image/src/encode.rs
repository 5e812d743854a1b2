//! Encoding of images as PNG files.

use crate::error::{Error, Result};
use crate::rgb_image::RgbImage;

/// Encodes the image as a PNG file.
///
/// # Errors
///
/// Returns [`Error::Argument`] if the image is empty or too large for the format.
pub fn encode_png(image: &RgbImage) -> Result<Vec<u8>> {
    let wrong = |reason: &dyn std::fmt::Display| Error::argument("image", reason);
    let [width, height] = [image.width, image.height].map(u32::try_from);
    let (width, height) = (width.map_err(|e| wrong(&e))?, height.map_err(|e| wrong(&e))?);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|e| wrong(&e))?;
    writer.write_image_data(&image.data).map_err(|e| wrong(&e))?;
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
}
