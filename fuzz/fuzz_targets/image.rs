//! Images of every format, with EXIF data or without, under limits of several sizes.

#![no_main]

use hipvit::image::{Cancellation, DecodeBuffers, DecodeOptions, Limits, decode, decode_for_device};
use hipvit_fuzz::{check_error, within};
use libfuzzer_sys::fuzz_target;

/// Maximum bytes that decoders take for an image of any size: windows of decompressors, tables of codes, rows of a few KiB.
const CONSTANT: u64 = 2 << 20;

/// Writes the checksums of a PNG's chunks, which would hide most changes otherwise.
fn write_checksums(bytes: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let Some(end) = at.checked_add(8 + length).filter(|end| end + 4 <= bytes.len()) else {
            return;
        };
        let sum = crc32fast::hash(&bytes[at + 4..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_be_bytes());
        at = end + 4;
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    if bytes.starts_with(b"\x89PNG") {
        write_checksums(&mut bytes);
    }
    // From the length, so that a seed is a file as it is.
    let limits = Limits {
        max_pixels: [1 << 10, 1 << 16, 1 << 18][bytes.len() % 3],
        max_memory: [1 << 14, 1 << 18, 1 << 21, 1 << 24][bytes.len() / 3 % 4],
    };
    let options = DecodeOptions::from(limits).exif_orientation(bytes.len() / 12 % 2 == 0);
    let on_host = within(limits.max_memory + CONSTANT, || decode("image", &bytes, options));
    let on_device = within(limits.max_memory + CONSTANT, || {
        let mut buffers = DecodeBuffers::default();
        decode_for_device("image", &bytes, options, &mut buffers, Cancellation::never())
    });
    match (&on_host, &on_device) {
        (Ok(image), Ok(decoded)) => assert_eq!(decoded.size(), [image.width, image.height]),
        (Err(expected), Err(error)) => assert_eq!(error.to_string(), expected.to_string()),
        (Ok(_), Err(error)) => panic!("only for a device: {error}"),
        (Err(error), Ok(_)) => panic!("only on the host: {error}"),
    }
    match on_host {
        Ok(image) => {
            assert!((image.width as u64) * (image.height as u64) <= limits.max_pixels);
            assert_eq!(image.data.len(), image.width * image.height * 3);
        }
        Err(error) => check_error(&error.into()),
    }
});
