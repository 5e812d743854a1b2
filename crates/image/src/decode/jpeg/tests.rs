use std::path::PathBuf;

use super::*;
use crate::decode::limits::Limits;
use crate::decode::{DecodeBuffers, DecodeOptions, DeviceImage, decode as decode_image, decode_for_device};

/// Returns the names and bytes of all JPEGs among the samples.
fn samples() -> Vec<(String, Vec<u8>)> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/image");
    let mut samples = Vec::new();
    for folder in ["samples", "jpeg", "damaged"] {
        for entry in std::fs::read_dir(data.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if bytes.starts_with(&[0xFF, 0xD8, 0xFF]) {
                samples.push((path.display().to_string(), bytes));
            }
        }
    }
    samples.sort();
    samples
}

fn for_device(name: &str, bytes: &[u8], options: DecodeOptions) -> crate::Result<DeviceImage> {
    let mut buffers = DecodeBuffers {
        coefficients: vec![u32::MAX; 1000],
        ..DecodeBuffers::default()
    };
    decode_for_device(name, bytes, options, &mut buffers, Cancellation::never())
}

/// Computes the pixels of packed coefficients with the host's transform and colour conversion.
fn pixels(jpeg: &JpegCoefficients, frame: &Frame, coding: Coding) -> Vec<u8> {
    let words = jpeg.words();
    let (steps, rest) = words.split_at(coefficients::STEP_WORDS);
    let (table, entries) = rest.split_at(jpeg.geometry.blocks());
    let entries: &[u16] = bytemuck::cast_slice(entries);
    let mut table = table.iter();
    let mut collected = Coefficients::new(frame);
    for (component, steps) in steps.chunks(64).take(frame.components.len()).enumerate() {
        let mut unpacked = [0; 64];
        for (step, at) in steps.iter().map(|word| (*word as u16, word >> 16)) {
            unpacked[at as usize] = step as i16;
        }
        collected.steps[component] = Some(unpacked);
        for block in &mut collected.blocks[component] {
            let word = *table.next().unwrap() as usize;
            *block = coefficients::unpack(&entries[word >> 7..][..word & 127]);
        }
    }
    let mut output = Output {
        rows: Rows::new(frame, coding),
        planes: frame.components.iter().map(Plane::new).collect(),
        row: 0,
        pixels: Vec::new(),
    };
    output
        .transform(frame, &collected, Cancellation::never())
        .unwrap();
    output.pixels
}

#[test]
fn packed_coefficients_have_the_pixels() {
    let (mut packed, mut on_host) = (0, Vec::new());
    for (name, bytes) in samples() {
        let expected = decode_image(&name, &bytes, Limits::default());
        match (for_device(&name, &bytes, DecodeOptions::default()), expected) {
            (Ok(DeviceImage::Jpeg(jpeg)), Ok(expected)) => {
                let read = Jpeg::read(&bytes).unwrap();
                let coding = coding(&read.frame, &read.markers);
                assert_eq!(jpeg.geometry.size, [expected.width, expected.height], "{name}");
                assert!(pixels(&jpeg, &read.frame, coding) == expected.data, "{name}");
                packed += 1;
            }
            (Ok(DeviceImage::Pixels(image)), Ok(expected)) => {
                assert_eq!(image, expected, "{name}");
                on_host.push(name);
            }
            (Err(got), Err(expected)) => assert_eq!(got.to_string(), expected.to_string()),
            (got, expected) => panic!("{name}: {:?}, {:?}", got.err(), expected.err()),
        }
    }
    assert!(packed > 80, "{packed}");
    // CMYK, and components of different sizes.
    let is_expected =
        |name: &String| name.contains("cmyk") || name.contains("ycck") || name.contains("crossed");
    assert!(
        !on_host.is_empty() && on_host.iter().all(is_expected),
        "{on_host:?}"
    );
}

#[test]
fn rotated_jpegs_are_decoded_by_the_host() {
    let samples = samples();
    let (name, bytes) = samples
        .iter()
        .find(|(name, _)| name.ends_with("rotated-by-exif.jpg"))
        .unwrap();
    let upright = DecodeOptions::default().exif_orientation(true);
    let expected = decode_image(name, bytes, upright).unwrap();
    let image = for_device(name, bytes, upright).unwrap();
    assert_eq!(image, DeviceImage::Pixels(expected));
    assert!(matches!(
        for_device(name, bytes, DecodeOptions::default()),
        Ok(DeviceImage::Jpeg(_))
    ));
}

/// Packing takes more memory than pixels. An image that only fits as pixels is decoded by the host.
#[test]
fn short_memory_is_left_for_pixels() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/image/samples/restarts-420.jpg");
    let bytes = std::fs::read(path).unwrap();
    let (mut jpegs, mut pixels, mut refused) = (0, 0, 0);
    for max_memory in (0..200_000).step_by(1000) {
        let limits = Limits {
            max_memory,
            ..Limits::default()
        };
        let expected = decode_image("x", &bytes, limits);
        match (for_device("x", &bytes, limits.into()), expected) {
            (Ok(DeviceImage::Jpeg(_)), Ok(_)) => jpegs += 1,
            (Ok(DeviceImage::Pixels(image)), Ok(expected)) => {
                assert_eq!(image, expected);
                pixels += 1;
            }
            (Err(got), Err(expected)) => {
                assert_eq!(got.to_string(), expected.to_string());
                refused += 1;
            }
            (got, expected) => panic!("{max_memory}: {:?}, {:?}", got.err(), expected.err()),
        }
    }
    assert!(
        jpegs > 0 && pixels > 0 && refused > 0,
        "{jpegs}, {pixels}, {refused}"
    );
}

/// A cut file gives the host's error wherever it is cut.
#[test]
fn errors_are_those_of_the_host() {
    let cut = samples()
        .into_iter()
        .filter(|(name, _)| name.contains("65x") || name.ends_with("restarts.jpg"));
    let mut refused = 0;
    for (name, mut bytes) in cut {
        for at in (2..bytes.len()).rev().step_by(11) {
            bytes.truncate(at);
            let expected = decode_image(&name, &bytes, Limits::default()).map(|_| ());
            let got = for_device(&name, &bytes, DecodeOptions::default()).map(|_| ());
            let text = |result: crate::Result<()>| result.map_err(|error| error.to_string());
            refused += usize::from(expected.is_err());
            assert_eq!(text(got), text(expected), "{name} cut at {at}");
        }
    }
    assert!(refused > 200, "{refused}");
}
