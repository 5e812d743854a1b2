//! Recognises content that cannot be decoded: images in other formats, and files that are not images.

use super::failure::Failure;
use hipvit_files::foreign;

/// Number of bytes from the beginning of a file that suffice to recognise it.
pub(super) const PREFIX: usize = foreign::PREFIX;

/// Offset, magic bytes and name of other image formats.
const IMAGES: &[(usize, &[u8], &str)] = &[
    (4, b"ftypavi", "an AVIF image"),
    (4, b"ftyphei", "an HEIC image"),
    (4, b"ftyphev", "an HEIC image"),
    (4, b"ftypmif1", "an HEIF image"),
    (4, b"ftypmsf1", "an HEIF image"),
    (4, b"ftypcrx ", "a camera's raw image (Canon CR3)"),
    (0, b"\0\0\0\x0cjP  ", "a JPEG 2000 image"),
    (0, b"\xff\x4f\xff\x51", "a JPEG 2000 image"),
    (0, b"\0\0\0\x0cJXL ", "a JPEG XL image"),
    (0, b"\xff\x0a", "a JPEG XL image"),
    (0, b"8BPS", "a Photoshop image (PSD)"),
    (0, b"\0\0\x01\0", "an icon (ICO)"),
    (0, b"icns", "an icon of macOS (ICNS)"),
    (0, b"DDS ", "a DirectDraw texture (DDS)"),
    (0, b"\xabKTX ", "a texture (KTX)"),
    (0, b"qoif", "a QOI image"),
    (0, b"\x76\x2f\x31\x01", "an OpenEXR image"),
    (0, b"#?RADIANCE", "a Radiance HDR image"),
    (0, b"gimp xcf", "a GIMP image (XCF)"),
    (0, b"\x8aMNG", "an MNG animation"),
    (0, b"\x8bJNG", "a JNG image"),
    (0, b"BPG\xfb", "a BPG image"),
    (0, b"FLIF", "a FLIF image"),
    (0, b"AT&TFORM", "a DjVu document"),
    (0, b"%!PS", "a PostScript document"),
    (0, b"\xd7\xcd\xc6\x9a", "a Windows metafile (WMF)"),
    (40, b" EMF", "a Windows metafile (EMF)"),
    (0, b"P1\n", "a PBM image"),
    (0, b"P2\n", "a PGM image"),
    (0, b"P3\n", "a PPM image"),
    (0, b"P4\n", "a PBM image"),
    (0, b"P5\n", "a PGM image"),
    (0, b"P6\n", "a PPM image"),
    (0, b"P7\n", "a PAM image"),
    (0, b"FUJIFILMCCD-RAW", "a camera's raw image (Fujifilm RAF)"),
    (0, b"IIRO", "a camera's raw image (Olympus ORF)"),
    (0, b"IIRS", "a camera's raw image (Olympus ORF)"),
    (0, b"MMOR", "a camera's raw image (Olympus ORF)"),
    (0, b"IIU\0", "a camera's raw image (Panasonic RW2)"),
    (0, b"FOVb", "a camera's raw image (Sigma X3F)"),
];

/// Returns true for a raw image of Canon. It is a TIFF whose pages do not contain the picture.
pub(super) fn is_cr2(bytes: &[u8]) -> bool {
    bytes.starts_with(b"II*\0") && bytes.get(8..10) == Some(b"CR")
}

pub(super) fn cr2() -> Failure {
    convert("a camera's raw image (Canon CR2)")
}

/// Returns true for the header of a mouse pointer: type 2 and a number of images, which is 0 in a TGA.
fn is_cur(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0\0\x02\0") && bytes.get(4..6).is_some_and(|count| count != [0, 0])
}

/// Returns true for the header of a TGA. TGA has no signature, so the description of the palette must match the image
/// type.
fn is_tga(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<18>() else {
        return false;
    };
    let [has_palette, image_type, palette_depth, depth] = [1, 2, 7, 16].map(|offset| header[offset]);
    let has_no_palette = has_palette == 0 && header[3..8] == [0; 5];
    let has_pixels = header[12..14] != [0, 0] && header[14..16] != [0, 0];
    let is_consistent = match image_type {
        1 | 9 => has_palette == 1 && depth == 8 && [15, 16, 24, 32].contains(&palette_depth),
        2 | 10 => has_no_palette && [15, 16, 24, 32].contains(&depth),
        3 | 11 => has_no_palette && [8, 16].contains(&depth),
        _ => false,
    };
    has_pixels && is_consistent
}

/// Returns an error that says what the content is, if known, and what to do.
pub(super) fn failure(bytes: &[u8]) -> Failure {
    let begins =
        |offset: usize, magic: &[u8]| bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    if let Some((_, _, name)) = IMAGES.iter().find(|(offset, magic, _)| begins(*offset, magic)) {
        return convert(name);
    }
    if is_cur(bytes) {
        return convert("a mouse pointer (CUR)");
    }
    if is_tga(bytes) {
        return convert("a TGA image");
    }
    match foreign::describe(bytes) {
        Some(what) => Failure::unsupported(format!("not an image, but {what}")),
        None => Failure::unsupported("not a PNG, JPEG, WebP, BMP, GIF or TIFF image"),
    }
}

fn convert(name: &str) -> Failure {
    Failure::unsupported(format!("{name}. Convert it to PNG or JPEG"))
}
