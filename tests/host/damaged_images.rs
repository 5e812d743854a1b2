//! Images with metadata in unusual places, or with damaged or missing bytes, compared with Pillow; and files
//! that are not images.

use std::fs;

use hipvit::ImageErrorKind;
use hipvit::image::{DecodeOptions, Limits, decode, open};
use serde::Deserialize;

use crate::support::at;
use crate::support::program::{hipvit, stderr};

/// Width, height and CRC-32 of the RGB pixels.
type Expected = (usize, usize, u32);

#[derive(Deserialize)]
struct Golden {
    file: String,
    as_stored: Expected,
    oriented: Expected,
}

fn options(oriented: bool) -> DecodeOptions {
    DecodeOptions::from(Limits::default()).exif_orientation(oriented)
}

fn decoded(bytes: &[u8], oriented: bool) -> Result<Expected, String> {
    match decode("picture", bytes, options(oriented)) {
        Ok(image) => Ok((image.width, image.height, crc32fast::hash(&image.data))),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn damaged_files_equal_pillow() {
    let folder = at("tests/data/image");
    let goldens: Vec<Golden> =
        serde_json::from_slice(&fs::read(folder.join("damaged.json")).unwrap()).unwrap();
    assert!(goldens.len() > 250);
    let mut wrong = Vec::new();
    for golden in goldens {
        let bytes = fs::read(folder.join("damaged").join(&golden.file)).unwrap();
        for (oriented, expected) in [(false, golden.as_stored), (true, golden.oriented)] {
            let found = decoded(&bytes, oriented);
            if found != Ok(expected) {
                wrong.push(format!("{}, oriented {oriented}: {found:?}", golden.file));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The expected values are from the folders' READMEs.
#[test]
fn public_reports_equal_pillow() {
    let cases = [
        (
            "10_exif_orientation_elsewhere/xmp.jpg",
            true,
            (45, 61, 0x0933_09ec),
        ),
        (
            "10_exif_orientation_elsewhere/xmp.png",
            true,
            (45, 61, 0x0111_e096),
        ),
        (
            "10_exif_orientation_elsewhere/xmp.webp",
            true,
            (45, 61, 0x0111_e096),
        ),
        (
            "10_exif_orientation_elsewhere/raw_profile.png",
            true,
            (45, 61, 0x0111_e096),
        ),
        ("11_tiff_fill_order_2/raw1.tif", false, (61, 45, 0xfc0e_cbe5)),
        ("11_tiff_fill_order_2/raw4.tif", false, (60, 45, 0xedca_9831)),
        ("11_tiff_fill_order_2/raw8.tif", false, (61, 45, 0x0de7_0312)),
        (
            "12_webp_flags_without_chunks/exif_lossy.webp",
            false,
            (61, 45, 0xce89_4de4),
        ),
        (
            "12_webp_flags_without_chunks/exif_lossless.webp",
            false,
            (61, 45, 0x4abe_7dce),
        ),
        ("13_tail_missing/no_iend.png", false, (61, 45, 0x4abe_7dce)),
        ("13_tail_missing/idat_crc.png", false, (61, 45, 0x4abe_7dce)),
        (
            "22_jpeg_restart_markers/wrong_number.jpg",
            false,
            (61, 45, 0x90fa_5b49),
        ),
        (
            "22_jpeg_restart_markers/missing.jpg",
            false,
            (61, 45, 0x3841_28cd),
        ),
    ];
    for (file, oriented, expected) in cases {
        let image = open(at("tests/cases").join(file), options(oriented)).unwrap();
        let found = (image.width, image.height, crc32fast::hash(&image.data));
        assert_eq!(found, expected, "{file}");
    }
}

/// A deliberate difference from Pillow, which would make up missing pixels.
#[test]
fn missing_pixels_are_refused() {
    let sample = |name: &str| fs::read(at("tests/data/image/samples").join(name)).unwrap();
    let refused = |bytes: &[u8], expected: &str| {
        let text = decoded(bytes, false).unwrap_err();
        assert!(text.contains(expected), "{text}");
    };
    // Two bytes of pixels, the checksums and IEND.
    let png = sample("rgb8.png");
    refused(&png[..png.len() - 24], "the PNG is truncated");
    // A byte of the last row.
    let bmp = sample("rgb24.bmp");
    refused(&bmp[..bmp.len() - 2], "the BMP is truncated");
    let gif = sample("palette.gif");
    refused(&gif[..gif.len() - 60], "GIF");
    let tiff = sample("rgb-raw.tif");
    refused(&tiff[..2000], "the TIFF is truncated");
    // The last interval, and damage in a file without restart markers.
    let jpeg = sample("restarts.jpg");
    let marker = |bytes: &[u8]| {
        let pairs = bytes.windows(2);
        pairs
            .clone()
            .rposition(|pair| matches!(pair, [0xFF, 0xD0..=0xD7]))
            .unwrap()
    };
    refused(
        &[&jpeg[..marker(&jpeg)], &[0xFF, 0xD9]].concat(),
        "ends before its last pixels",
    );
    let mut jpeg = sample("baseline-420.jpg");
    let end = jpeg.len() - 400;
    jpeg[end..end + 20].fill(0xFE);
    refused(&jpeg, "JPEG: ");
}

/// A PNG header or palette with a wrong checksum is not used.
#[test]
fn wrong_checksums_of_headers_are_refused() {
    let png = fs::read(at("tests/data/image/samples/palette4.png")).unwrap();
    let palette = png.windows(4).position(|kind| kind == b"PLTE").unwrap();
    for (place, chunk) in [(18, "IHDR"), (palette + 5, "PLTE")] {
        let mut damaged = png.clone();
        damaged[place] ^= 1;
        let text = decoded(&damaged, false).unwrap_err();
        assert_eq!(
            text,
            format!("picture: damaged PNG: the checksum of its chunk {chunk} is wrong")
        );
    }
}

#[test]
fn files_that_are_not_images_say_what_they_are() {
    let long = |start: &[u8]| [start, &[b' '; 700]].concat();
    let cases: [(Vec<u8>, &str, &str); 22] = [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n".to_vec(),
            "a Git LFS pointer",
            "git lfs pull",
        ),
        (long(b"<!DOCTYPE html><html>"), "an HTML page", "Download"),
        (
            long(b"<?xml version=\"1.0\"?>\n<svg width=\"1\">"),
            "an SVG",
            "PNG",
        ),
        (
            b"\0\x05\x16\x07\0\x02\0\0Mac OS X        ".to_vec(),
            "an AppleDouble file",
            "._",
        ),
        (b"\x80\x04\x95\x10\0\0\0\0\0\0\0".to_vec(), "a Python pickle", ""),
        (long(b"%PDF-1.7\n"), "a PDF document", "PNG"),
        (long(b"PK\x03\x04"), "a ZIP archive", "Unpack"),
        (
            b"\0\0\0\x1cftypavif\0\0\0\0".to_vec(),
            "an AVIF image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\0\0\0\x1cftypheic\0\0\0\0".to_vec(),
            "an HEIC image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\0\0\0\x1cftyphevc\0\0\0\0".to_vec(),
            "an HEIC image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\0\0\0\x18ftypmif1\0\0\0\0".to_vec(),
            "an HEIF image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\0\0\0\x0cJXL \r\n\x87\n".to_vec(),
            "a JPEG XL image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\xff\x0a\xfa\x7f".to_vec(),
            "a JPEG XL image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\0\0\0\x0cjP  \r\n\x87\n".to_vec(),
            "a JPEG 2000 image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"8BPS\0\x01".to_vec(),
            "a Photoshop image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\0\0\x01\0\x01\0".to_vec(),
            "an icon (ICO)",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\0\0\x02\0\x01\0\x20\x20\0\0".to_vec(),
            "a mouse pointer (CUR)",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\0\0\x02\0\0\0\0\0\0\0\0\0\x08\0\x08\0\x18\0".to_vec(),
            "a TGA image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"\x1a\x01\x01\0\0\0\x01\x18\0\0\0\0\x08\0\x08\0\x08\0".to_vec(),
            "a TGA image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"DDS \x7c\0\0\0".to_vec(),
            "a DirectDraw texture",
            "Convert it to PNG or JPEG",
        ),
        (
            b"II*\0\x10\0\0\0CR\x02\0".to_vec(),
            "a camera's raw image",
            "Convert it to PNG or JPEG",
        ),
        (
            b"FUJIFILMCCD-RAW 0201".to_vec(),
            "a camera's raw image",
            "Convert it to PNG or JPEG",
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (content, what, advice) in cases {
        let file = dir.path().join("photo.jpg");
        fs::write(&file, content).unwrap();
        let error = open(&file, Limits::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(what) && text.contains(advice), "{text}");
        assert!(
            matches!(
                error,
                hipvit::image::Error::Image {
                    kind: ImageErrorKind::Unsupported,
                    ..
                }
            ),
            "{text}"
        );
        let output = hipvit(["classify".as_ref(), file.as_os_str()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    }
}

/// Messages do not contain Rust's Debug form of types.
#[test]
fn refusals_are_words() {
    let sample = |name: &str| fs::read(at("tests/data/image/samples").join(name)).unwrap();
    let mut texts = Vec::new();
    // The compression of a TIFF, its bits per sample and its meaning; types and counts of entries.
    let tiff = sample("white-is-zero.tif");
    for place in tiff.len() - 160..tiff.len() {
        for value in [0, 2, 3, 6, 9, 255] {
            let mut damaged = tiff.clone();
            damaged[place] = value;
            texts.extend(decoded(&damaged, false).err());
        }
    }
    for name in [
        "rgb8.png",
        "palette4.png",
        "rgb-lossy.webp",
        "rgb-lossless.webp",
        "palette.gif",
        "rgb24.bmp",
    ] {
        let bytes = sample(name);
        for place in 8..80.min(bytes.len()) {
            for value in [0, 2, 255] {
                let mut damaged = bytes.clone();
                damaged[place] = value;
                texts.extend(decoded(&damaged, false).err());
            }
        }
    }
    assert!(texts.len() > 300);
    for text in texts {
        assert!(!text.contains(['{', '}', '[', ']']), "{text}");
        assert!(
            !text.contains("ChunkType") && !text.contains("(8)") && !text.contains("Some("),
            "{text}"
        );
    }
}
