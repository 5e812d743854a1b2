//! JPEG, baseline and progressive: grey, YCbCr, RGB, and Adobe's CMYK and YCCK, through `zune-jpeg`, or through
//! libjpeg-turbo with the feature of that name.

use super::{Failure, Limits, color};
use crate::error::ImageErrorKind;
use crate::image::RgbImage;

#[cfg(not(feature = "libjpeg-turbo"))]
pub(super) fn decode(bytes: &[u8], limits: &Limits, mut samples: Vec<u8>) -> Result<RgbImage, Failure> {
    use zune_core::bytestream::ZCursor;
    use zune_core::colorspace::ColorSpace;
    use zune_core::options::DecoderOptions;
    use zune_jpeg::JpegDecoder;

    let reason = |error: zune_jpeg::errors::DecodeErrors| broken(bytes, &error);
    // 65535 is the format's own bound. Strict: missing pixels are an error instead of grey.
    let options = DecoderOptions::default()
        .set_max_width(65535)
        .set_max_height(65535)
        .set_strict_mode(true);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(reason)?;
    let info = decoder.info().ok_or("the JPEG has no header")?;
    let (width, height) = limits.check(info.width, info.height)?;

    let stored = decoder.input_colorspace().ok_or("the JPEG has no header")?;
    let raw = match stored {
        ColorSpace::CMYK | ColorSpace::YCCK => stored,
        _ => ColorSpace::RGB,
    };
    decoder.set_options(options.jpeg_set_out_colorspace(raw));
    // A damaged file may leave samples unwritten: they must not be those of another image.
    samples.clear();
    samples.resize(decoder.output_buffer_size().ok_or("the JPEG has no header")?, 0);
    decoder.decode_into(&mut samples).map_err(reason)?;
    let quads = samples.chunks_exact(4).map(|s| [s[0], s[1], s[2], s[3]]);
    let data = match raw {
        ColorSpace::CMYK => inverted_cmyk(quads),
        ColorSpace::YCCK => inverted_cmyk(quads.map(ycck_to_cmyk)),
        _ => samples,
    };
    if data.len() != width * height * 3 {
        return Err(Failure::unsupported(format!(
            "a JPEG with {} colour components",
            info.components
        )));
    }
    Ok(RgbImage { width, height, data })
}

#[cfg(feature = "libjpeg-turbo")]
pub(super) fn decode(bytes: &[u8], limits: &Limits, mut samples: Vec<u8>) -> Result<RgbImage, Failure> {
    use turbojpeg::{Colorspace, Decompressor, Image, PixelFormat};

    let reason = |error: turbojpeg::Error| broken(bytes, &error);
    let mut decoder = Decompressor::new().map_err(reason)?;
    let header = decoder.read_header(bytes).map_err(reason)?;
    let (width, height) = limits.check(header.width as u64, header.height as u64)?;
    let format = match header.colorspace {
        Colorspace::CMYK | Colorspace::YCCK => PixelFormat::CMYK,
        _ => PixelFormat::RGB,
    };
    let pitch = width * format.size();
    samples.clear();
    samples.resize(pitch * height, 0);
    let image = Image {
        pixels: &mut samples[..],
        width,
        pitch,
        height,
        format,
    };
    decoder.decompress(bytes, image).map_err(reason)?;
    let data = match format {
        PixelFormat::CMYK => inverted_cmyk(samples.chunks_exact(4).map(|s| [s[0], s[1], s[2], s[3]])),
        _ => samples,
    };
    Ok(RgbImage { width, height, data })
}

/// The failure of a decoder, which does not say whether the file was truncated. Such a file does not end with the marker EOI.
fn broken(bytes: &[u8], error: &dyn std::fmt::Display) -> Failure {
    let reason = format!("damaged or truncated JPEG: {error}");
    let kind = match bytes.trim_ascii_end().ends_with(&[0xFF, 0xD9]) {
        true => ImageErrorKind::Damaged,
        false => ImageErrorKind::Truncated,
    };
    Failure {
        kind,
        reason: reason.into(),
    }
}

/// Every four-component JPEG is taken to store inverted inks, as Adobe's programs write them and Pillow assumes.
fn inverted_cmyk(samples: impl Iterator<Item = [u8; 4]>) -> Vec<u8> {
    color::cmyk(samples.map(|inks| inks.map(|ink| 255 - ink)))
}

#[cfg(not(feature = "libjpeg-turbo"))]
fn ycck_to_cmyk([y, cb, cr, k]: [u8; 4]) -> [u8; 4] {
    let [red, green, blue] = color::ycbcr([y, cb, cr]);
    [255 - red, 255 - green, 255 - blue, k]
}
