//! Options for decoding images.

use hipvit::image::{DecodeOptions, Limits};

/// Options for decoding images, and its limits.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct DecodeArgs {
    /// Rotate images by their EXIF orientation
    ///
    /// By default the orientation is ignored, as in timm and transformers.
    #[arg(long)]
    pub(crate) exif: bool,
    /// Reject images with more than N pixels
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_pixels, hide_short_help = true)]
    pub(crate) max_pixels: u64,
    /// Memory for decoding, e.g. 800M or 4G [default: half of RAM]
    ///
    /// All threads share this memory. An image waits until it fits, and is rejected if it can never fit.
    #[arg(long, value_name = "BYTES", value_parser = bytes, hide_short_help = true)]
    max_decode_memory: Option<u64>,
}

/// Parses a number of bytes. The suffixes K, M, G and T are powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, power) = match text.strip_suffix(['K', 'k', 'M', 'm', 'G', 'g', 'T', 't']) {
        Some(number) => match text.as_bytes()[number.len()].to_ascii_uppercase() {
            b'K' => (number, 1),
            b'M' => (number, 2),
            b'G' => (number, 3),
            _ => (number, 4),
        },
        None => (text, 0),
    };
    let number: u64 = number
        .parse()
        .map_err(|e: std::num::ParseIntError| e.to_string())?;
    number
        .checked_mul(1 << (10 * power))
        .ok_or_else(|| "is too large".into())
}

impl DecodeArgs {
    pub(crate) fn options(&self) -> DecodeOptions {
        self.options_of_one(1)
    }

    /// Returns the options for one of `processes` processes that share the host's memory.
    pub(crate) fn options_of_one(&self, processes: usize) -> DecodeOptions {
        let limits = Limits {
            max_pixels: self.max_pixels,
            max_memory: self
                .max_decode_memory
                .unwrap_or_else(|| Limits::default().max_memory / processes as u64),
        };
        DecodeOptions::from(limits).exif_orientation(self.exif)
    }
}
