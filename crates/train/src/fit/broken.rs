//! Broken images as ranks tell each other.

use hipvit_data::Broken;

/// Index and error of a broken image.
pub(super) type BrokenText = (usize, String);

/// Returns the index and the error of each broken image.
pub(super) fn broken_texts(broken: &[Broken]) -> Vec<BrokenText> {
    let text = |broken: &Broken| (broken.index, broken.error.to_string());
    broken.iter().map(text).collect()
}

/// Returns a broken image of any rank.
pub(super) fn broken_elsewhere((index, text): BrokenText) -> Broken {
    Broken {
        index,
        error: hipvit_data::Error::Elsewhere { text },
    }
}
