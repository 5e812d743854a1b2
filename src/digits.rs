//! Handwritten digits that TinyViT32 was not trained on: ten samples, and the held-out set on which `hipvit eval`
//! measures accuracy. Source and licence: `assets/README.md`.

use std::borrow::Cow;
use std::path::Path;

use crate::error::Result;
use crate::evaluate::LabelledSet;
use crate::pipeline::Source;

macro_rules! sample {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../assets/samples/", $name)))
    };
}

const SAMPLES: [(&str, &[u8]); 10] = [
    sample!("0.png"),
    sample!("1.png"),
    sample!("2.png"),
    sample!("3.png"),
    sample!("4.png"),
    sample!("5.png"),
    sample!("6.png"),
    sample!("7.png"),
    sample!("8.png"),
    sample!("9.png"),
];

/// Returns one held-out image of each digit, 32×32, named by its digit.
pub fn samples() -> impl ExactSizeIterator<Item = Source> {
    SAMPLES
        .iter()
        .map(|&(name, bytes)| Source::Bytes(name.into(), Cow::Borrowed(bytes)))
}

/// Returns the 360 held-out images, 32×32, labelled with their digits.
///
/// # Errors
///
/// Returns no error in practice, because the set is embedded.
pub fn held_out() -> Result<LabelledSet> {
    let bytes = include_bytes!("../assets/digits/heldout.safetensors");
    LabelledSet::from_safetensors(Path::new("heldout.safetensors"), bytes)
}
