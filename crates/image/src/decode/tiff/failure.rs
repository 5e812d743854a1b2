//! Converts errors of the `tiff` crate to readable messages. The crate's own messages contain the `Debug` form of its
//! types.

use ::tiff::tags::{CompressionMethod, Tag};
use ::tiff::{ColorType, TiffError, TiffFormatError, TiffUnsupportedError};

use crate::decode::failure::Failure;
use crate::error::ImageErrorKind;

/// Describes a kind of pixels.
pub(super) fn name(color: ColorType) -> String {
    let bits = color.bit_depth();
    let kind = match color {
        ColorType::Gray(_) => "grey",
        ColorType::GrayA(_) => "grey and alpha",
        ColorType::RGB(_) => "RGB",
        ColorType::RGBA(_) => "RGBA",
        ColorType::Palette(_) => "a palette",
        ColorType::CMYK(_) => "CMYK",
        ColorType::CMYKA(_) => "CMYK and alpha",
        ColorType::YCbCr(_) => "YCbCr",
        ColorType::Lab(_) => "Lab",
        ColorType::Multiband { num_samples, .. } => return format!("{num_samples} samples of {bits} bits"),
        _ => "an unknown kind",
    };
    format!("{kind} with {bits} bits per sample")
}

/// Converts an error of the decoder to a failure.
pub(super) fn reason(error: &TiffError) -> Failure {
    match error {
        TiffError::UnsupportedError(error) => Failure::unsupported(unsupported(error)),
        TiffError::LimitsExceeded => {
            Failure::too_large("a strip, a tile or a list of the TIFF is larger than its file")
        }
        TiffError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Failure::truncated("the TIFF is truncated")
        }
        TiffError::IoError(error) => format!("damaged TIFF: {error}").into(),
        TiffError::FormatError(error) => format!("damaged TIFF: {}", damage(error)).into(),
        _ => Failure {
            kind: ImageErrorKind::Damaged,
            reason: "damaged TIFF: its sizes contradict each other".into(),
        },
    }
}

fn unsupported(error: &TiffUnsupportedError) -> String {
    use TiffUnsupportedError as Error;
    match error {
        Error::FloatingPointPredictor(color) | Error::HorizontalPredictor(color) => {
            format!("a TIFF with a predictor (tag 317) for pixels of {}", name(*color))
        }
        Error::UnsupportedColorType(color) => format!("a TIFF with pixels of {}", name(*color)),
        Error::UnsupportedCompressionMethod(method) => {
            format!("a TIFF with {}", compression(*method))
        }
        Error::UnsupportedSampleDepth(samples) => format!("a TIFF with {samples} samples per pixel"),
        Error::InconsistentBitsPerSample(_) => "a TIFF whose samples differ in their bits (tag 258)".to_owned(),
        Error::UnknownInterpretation | Error::InterpretationWithBits(..) | Error::UnsupportedInterpretation(_) => {
            "a TIFF whose samples have an unsupported meaning (tag 262), or one that does not fit their bits (tag 258)"
                .to_owned()
        }
        Error::UnsupportedSampleFormat(_) => "a TIFF with samples of an unsupported format (tag 339)".to_owned(),
        _ => "a TIFF of an unsupported kind".to_owned(),
    }
}

fn compression(method: CompressionMethod) -> String {
    let number = method.to_u16();
    let name = match number {
        2 => "CCITT modified Huffman compression",
        3 => "CCITT Group 3 compression",
        6 => "old-style JPEG compression",
        32809 => "ThunderScan compression",
        34676 | 34677 => "SGI Log compression",
        34712 => "JPEG 2000 compression",
        34925 => "LZMA compression",
        50000 => "Zstandard compression",
        50001 => "WebP compression",
        50002 | 52546 => "JPEG XL compression",
        _ => return format!("the unknown compression (tag 259) {number}"),
    };
    format!("{name} (tag 259 is {number}). Convert it to PNG, or to a TIFF with LZW or Deflate compression")
}

fn damage(error: &TiffFormatError) -> String {
    use TiffFormatError as Error;
    match error {
        Error::InvalidTagValueType(tag) => format!("its tag {} has values of the wrong type", number(*tag)),
        Error::RequiredTagNotFound(tag) => format!("its tag {} is missing", number(*tag)),
        Error::InvalidCountForTag(tag, count) => format!("its tag {} has {count} values", number(*tag)),
        other => other.to_string(),
    }
}

/// Returns the number of a tag, with its name if a page requires the tag.
fn number(tag: Tag) -> String {
    let name = match tag {
        Tag::ImageWidth => "ImageWidth",
        Tag::ImageLength => "ImageLength",
        Tag::StripOffsets => "StripOffsets",
        Tag::StripByteCounts => "StripByteCounts",
        Tag::TileOffsets => "TileOffsets",
        Tag::TileByteCounts => "TileByteCounts",
        Tag::ColorMap => "ColorMap",
        other => return other.to_u16().to_string(),
    };
    format!("{} ({name})", tag.to_u16())
}
