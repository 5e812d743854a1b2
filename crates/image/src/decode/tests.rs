use std::path::PathBuf;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::error::ImageErrorKind;

#[derive(Deserialize)]
struct Golden {
    file: String,
    width: usize,
    height: usize,
    crc32: u32,
}

fn samples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/image/samples")
}

fn goldens() -> Vec<Golden> {
    let text = std::fs::read(samples().with_file_name("decode.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Reused memory keeps nothing of earlier images.
#[test]
fn memory_is_used_again_for_images_of_other_sizes() {
    let mut buffers = DecodeBuffers::default();
    let mut reused = 0;
    for golden in goldens().iter().chain(goldens().iter().rev()) {
        let path = samples().join(&golden.file);
        let expected = open(&path, Limits::default());
        buffers.pixels.resize(1 << 20, 0);
        buffers.pixels.fill(0xa5);
        let before = buffers.pixels.as_ptr();
        match (open_in(&path, Limits::default(), &mut buffers), expected) {
            (Ok(image), Ok(expected)) => {
                assert_eq!(image, expected, "{}", golden.file);
                reused += usize::from(image.data.as_ptr() == before);
                buffers.pixels = image.data;
            }
            (got, expected) => assert!(got.is_err() && expected.is_err(), "{}", golden.file),
        }
    }
    assert!(reused > 10, "{reused} images");
}

#[test]
fn equals_pillow_on_the_goldens() {
    let mut wrong = Vec::new();
    let text = std::fs::read(samples().with_file_name("jpeg.json")).unwrap();
    let jpegs: Vec<Golden> = serde_json::from_slice(&text).unwrap();
    let jpegs = jpegs
        .into_iter()
        .map(|golden| (samples().with_file_name("jpeg"), golden));
    let goldens = goldens().into_iter().map(|golden| (samples(), golden));
    let goldens: Vec<_> = goldens.chain(jpegs).collect();
    assert!(goldens.len() > 250);
    for (folder, golden) in &goldens {
        let path = folder.join(&golden.file);
        let image = match open(&path, Limits::default()) {
            Ok(image) => image,
            Err(error) => {
                wrong.push(error.to_string());
                continue;
            }
        };
        let mut judge = |good: bool, what: String| {
            if !good {
                wrong.push(format!("{}: {what}", golden.file));
            }
        };
        judge(
            (image.width, image.height) == (golden.width, golden.height),
            "size".to_owned(),
        );
        judge(crc32fast::hash(&image.data) == golden.crc32, "pixels".to_owned());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// libjpeg fills such truncated and inconsistent files with grey.
#[test]
fn jpegs_without_all_of_their_pixels_are_refused() {
    let read = |name: &str| std::fs::read(samples().join(name)).unwrap();
    let mut whole = 0;
    for name in [
        "baseline-420.jpg",
        "progressive-420.jpg",
        "restarts.jpg",
        "grey.jpg",
        "separate-scans.jpg",
    ] {
        let bytes = read(name);
        let refused = |bytes: &[u8], what: &str| {
            let text = refusal(bytes);
            assert!(text.contains("JPEG"), "{name}, {what}: {text}");
        };
        let scan = bytes
            .windows(2)
            .position(|marker| marker == [0xFF, 0xDA])
            .unwrap()
            + 20;
        for at in (scan..bytes.len() - 3).step_by(7) {
            refused(&[&bytes[..at], &[0xFF, 0xD9]].concat(), "cut before EOI");
            // In a file with several scans, the position may be inside a table, where EOI is not a marker.
            if !["progressive-420.jpg", "separate-scans.jpg"].contains(&name) {
                refused(
                    &[&bytes[..at], &[0xFF, 0xD9], &bytes[at..]].concat(),
                    "EOI within",
                );
            }
            refused(&bytes[..at], "cut");
            whole += 1;
        }
        refused(&bytes[..bytes.len() - 2], "no EOI");
        let mut taller = bytes.clone();
        let frame = taller
            .windows(2)
            .position(|marker| matches!(marker, [0xFF, 0xC0 | 0xC2]))
            .unwrap();
        taller[frame + 5..frame + 7].copy_from_slice(&1000_u16.to_be_bytes());
        refused(&taller, "taller");
        assert!(decode(name, &bytes, Limits::default()).is_ok());
    }
    assert!(whole > 500, "{whole} cuts");
}

/// libjpeg also skips bytes that are not markers.
#[test]
fn bytes_between_a_jpegs_scan_and_its_end_are_skipped() {
    let bytes = std::fs::read(samples().join("baseline-420.jpg")).unwrap();
    let expected = decode("", &bytes, Limits::default()).unwrap();
    let (scan, end) = bytes.split_at(bytes.len() - 2);
    let longer = [scan, &[1, 2, 0xFF, 0, 3], end].concat();
    assert_eq!(decode("", &longer, Limits::default()).unwrap(), expected);
}

#[test]
fn unsupported_jpegs_are_named() {
    let bytes = std::fs::read(samples().join("baseline-420.jpg")).unwrap();
    let frame = bytes
        .windows(2)
        .position(|marker| marker == [0xFF, 0xC0])
        .unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[frame + at] = value;
        refusal(&bytes)
    };
    assert!(with(1, 0xC3).contains("lossless"));
    assert!(with(1, 0xC9).contains("arithmetic"));
    assert!(with(1, 0xC5).contains("hierarchical"));
    assert!(with(4, 12).contains("12 bits"));
    assert!(with(14, 0x32).contains("fractional sampling factors"));
    assert!(with(11, 0x05).contains("sampling factors"));
    // The size is too large for the scan to have a bit for each block.
    let mut large = bytes.clone();
    large[frame + 5..frame + 9].copy_from_slice(&[0x30, 0, 0x30, 0]);
    assert!(refusal(&large).contains("truncated"));
}

#[test]
fn an_embedded_png_is_told_by_content_not_by_name() {
    let png = std::fs::read(samples().join("rgb8.png")).unwrap();
    assert!(decode("photo.jpg", &png, Limits::default()).is_ok());
}

fn pixels(max_pixels: u64) -> Limits {
    Limits {
        max_pixels,
        ..Limits::default()
    }
}

/// Returns the one-line error for `bytes`.
fn refusal(bytes: &[u8]) -> String {
    let text = decode("picture", bytes, Limits::default())
        .unwrap_err()
        .to_string();
    assert!(text.starts_with("picture: ") && !text.contains('\n'), "{text}");
    text
}

#[test]
fn bad_files_are_refused_in_one_line() {
    assert_eq!(refusal(b""), "picture: the file is empty");
    assert_eq!(
        refusal(b"hello"),
        "picture: not a PNG, JPEG, WebP, BMP, GIF or TIFF image"
    );
    for magic in ["\u{89}PNG", "GIF89a", "BM", "II*\0", "MM\0*"] {
        refusal(magic.as_bytes());
    }
    refusal(&[0xFF, 0xD8, 0xFF]);
    refusal(b"RIFF\0\0\0\0WEBP");
    refusal(b"RIFF\xFF\xFF\xFF\xFFWEBPVP8X");
    assert!(matches!(
        open(samples(), Limits::default()),
        Err(Error::Io { .. })
    ));
    assert!(matches!(
        open("no/such/file", Limits::default()),
        Err(Error::Io { .. })
    ));
}

/// Every prefix without the last tenth of the file lacks pixels.
#[test]
fn truncated_files_are_refused() {
    for golden in goldens() {
        // The first frame of an animation may be complete. Trailing bytes and pages after the first do not matter. The
        // directory of a TIFF may come after the pixels or before them.
        let whole_first = ["animated", "pages", "trailing"]
            .iter()
            .any(|name| golden.file.starts_with(name));
        let bytes = std::fs::read(samples().join(&golden.file)).unwrap();
        if whole_first || bytes.len() < 200 {
            continue;
        }
        for kept in [bytes.len() / 3, bytes.len() / 2, bytes.len() * 9 / 10] {
            let result = decode(&golden.file, &bytes[..kept], Limits::default());
            assert!(
                result.is_err(),
                "{} cut to {kept} of {} bytes",
                golden.file,
                bytes.len()
            );
        }
    }
}

/// The headers state 300,000 × 300,000 pixels, or the maximum of the format.
#[test]
fn decompression_bombs_are_refused_by_their_header() {
    let read = |name: &str| std::fs::read(samples().join(name)).unwrap();
    let refused = |bytes: &[u8]| {
        let text = refusal(bytes);
        assert!(text.contains("limit") && text.contains("bomb"), "{text}");
    };
    let side = 300_000_u32;

    let mut png = read("rgb8.png");
    png[16..20].copy_from_slice(&side.to_be_bytes());
    png[20..24].copy_from_slice(&side.to_be_bytes());
    let crc = crc32fast::hash(&png[12..29]);
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    refused(&png);

    let mut bmp = read("rgb24.bmp");
    bmp[18..22].copy_from_slice(&side.to_le_bytes());
    bmp[22..26].copy_from_slice(&side.to_le_bytes());
    refused(&bmp);

    let mut gif = read("palette.gif");
    gif[6..10].fill(0xFF);
    refused(&gif);

    let mut jpeg = read("baseline-420.jpg");
    let frame = jpeg.windows(2).position(|marker| marker == [0xFF, 0xC0]).unwrap();
    // 60,000 each way; libjpeg itself stops at 65,500.
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xEA, 0x60, 0xEA, 0x60]);
    refused(&jpeg);

    // Three strips of 100,000 rows.
    let mut tiff = read("rgbx.tif");
    for (tag, value) in [(256_u16, side), (257, side), (278, side / 3)] {
        let entry = [tag.to_le_bytes(), 4_u16.to_le_bytes()].concat();
        let at = tiff.windows(4).position(|bytes| bytes == entry).unwrap();
        tiff[at + 8..at + 12].copy_from_slice(&value.to_le_bytes());
    }
    refused(&tiff);

    let mut webp = read("animated-offset.webp");
    webp[24..30].fill(0xFF);
    refused(&webp);
}

#[test]
fn the_limit_can_be_raised_and_lowered() {
    let png = std::fs::read(samples().join("rgb8.png")).unwrap();
    assert!(decode("rgb8.png", &png, pixels(37 * 29)).is_ok());
    assert!(decode("rgb8.png", &png, pixels(37 * 29 - 1)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Any damage gives an image or an error, never a panic.
    #[test]
    fn damaged_files_do_not_panic(
        file: prop::sample::Index,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let goldens = goldens();
        let golden = &goldens[file.index(goldens.len())];
        let mut bytes = std::fs::read(samples().join(&golden.file)).unwrap();
        for (at, value) in &damage {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let limits = pixels(1 << 20);
        if let Ok(image) = decode(&golden.file, &bytes, limits) {
            prop_assert_eq!(image.data.len(), image.width * image.height * 3);
        }
    }
}

/// Returns a grey progressive JPEG with `refinements` scans that refine nothing and have a few bytes each.
fn progressive(side: u16, refinements: usize) -> Vec<u8> {
    let [high, low] = side.to_be_bytes();
    let blocks = (usize::from(side) / 8).pow(2);
    let mut file = vec![0xFF, 0xD8, 0xFF, 0xDB, 0, 67, 0];
    file.extend([1; 64]);
    file.extend([0xFF, 0xC2, 0, 11, 8, high, low, high, low, 1, 1, 0x11, 0]);
    // One-bit codes: 0 for no difference, and 0 for the end of 2^14 blocks with 14 more bits.
    for (table, symbol) in [(0x00, 0x00), (0x10, 0xE0)] {
        file.extend([0xFF, 0xC4, 0, 20, table, 1]);
        file.extend([0; 15]);
        file.push(symbol);
    }
    let mut scan = |[first, last, bits]: [u8; 3], bytes: usize| {
        file.extend([0xFF, 0xDA, 0, 8, 1, 1, 0, first, last, bits]);
        file.resize(file.len() + bytes, 0);
    };
    let ends = (blocks.div_ceil(1 << 14) * 15).div_ceil(8);
    scan([0, 0, 0], blocks.div_ceil(8));
    scan([1, 63, 0x01], ends);
    for _ in 0..refinements {
        scan([1, 63, 0x10], ends);
    }
    file.extend([0xFF, 0xD9]);
    file
}

#[test]
fn the_scans_of_a_jpeg_are_bounded_by_its_size() {
    let decode = |side, refinements| decode("a.jpg", &progressive(side, refinements), Limits::default());
    assert!(decode(64, 400).unwrap().data.iter().all(|&value| value == 128));
    assert!(decode(4096, 8).is_ok());
    let error = decode(4096, 40).unwrap_err();
    let Error::Image { kind, reason, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(kind, ImageErrorKind::TooLarge);
    assert!(reason.contains("scans pass over its pixels"), "{reason}");
    let error = decode(8, 499).unwrap_err().to_string();
    assert!(error.contains("more than 500 scans"), "{error}");
}

#[test]
fn cancelled_decoding_ends() {
    use std::cell::Cell;

    let decode = |bytes: &[u8], is_cancelled: &dyn Fn() -> bool| {
        let (memory, cancellation) = (Vec::new(), Cancellation::new(is_cancelled));
        decode_unless("a", bytes, Limits::default().into(), memory, cancellation)
    };
    let mut cancelled = 0;
    for golden in goldens() {
        // BMP files take no time to decode.
        if !golden.file.ends_with(".bmp") && !golden.file.ends_with(".dib") {
            let bytes = std::fs::read(samples().join(&golden.file)).unwrap();
            assert!(!bytes.starts_with(b"BM"), "{}", golden.file);
            assert!(decode(&bytes, &|| true).is_err(), "{}", golden.file);
            cancelled += 1;
        }
    }
    assert!(cancelled > 150, "{cancelled}");
    // Decoders check not only at the beginning.
    let asked = Cell::new(0);
    let after_100 = || {
        asked.set(asked.get() + 1);
        asked.get() > 100
    };
    assert!(decode(&progressive(1024, 30), &after_100).is_err());
    assert_eq!(asked.get(), 101);
}

/// Returns a TIFF of `width` × `height` grey pixels in equal tiles that share the same bytes.
fn tiled(compression: u16, [width, height]: [u32; 2], [across, down]: [u32; 2], tile: &[u8]) -> Vec<u8> {
    let tiles = width.div_ceil(across) * height.div_ceil(down);
    let entries: [(u16, u16, u32, u32); 10] = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 1, 8),
        (259, 3, 1, compression.into()),
        (262, 3, 1, 1),
        (277, 3, 1, 1),
        (322, 4, 1, across),
        (323, 4, 1, down),
        (324, 4, tiles, 0),
        (325, 4, tiles, 0),
    ];
    // The lists of offsets and lengths, and the tile, follow the directory.
    let lists = 8 + 2 + 12 * entries.len() as u32 + 4;
    let at = lists + 8 * tiles;
    let mut file = b"II*\0\x08\0\0\0".to_vec();
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        let value = match (tag, count) {
            (324, 1) => at,
            (325, 1) => tile.len() as u32,
            (324, _) => lists,
            (325, _) => lists + 4 * tiles,
            _ => value,
        };
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 4]);
    file.extend(at.to_le_bytes().repeat(tiles as usize));
    file.extend((tile.len() as u32).to_le_bytes().repeat(tiles as usize));
    file.extend(tile);
    file
}

#[cfg(feature = "tiff")]
#[test]
fn the_tiles_of_a_tiff_share_their_bounds() {
    const JPEG: u16 = 7;
    let refused = |file: &[u8]| decode("a.tiff", file, Limits::default()).unwrap_err().to_string();
    // Scans of a few bytes: each tile alone is within the limit of a file, all tiles together exceed it.
    let tile = progressive(1024, 400);
    assert!(
        decode(
            "a.tiff",
            &tiled(JPEG, [1024, 1024], [1024, 1024], &tile),
            Limits::default()
        )
        .is_ok()
    );
    let reason = refused(&tiled(JPEG, [2048, 2048], [1024, 1024], &tile));
    assert!(reason.contains("scans pass over its pixels"), "{reason}");
    // A byte of Group 4 data can encode many rows.
    let reason = refused(&tiled(4, [1, 65528], [65520, 65520], &[0xFF; 8192]));
    assert!(reason.contains("tiles have"), "{reason}");
}
