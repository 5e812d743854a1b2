//! Prepares a text as SigLIP's tokenizer does: as in training, in lower case and without punctuation.

use super::python;

/// Cleans a text as transformers' `SiglipTokenizer` does. Cleaning twice has no further effect, so `tokenizer.json` may
/// clean too.
pub(super) fn canonicalize(text: &str, lower_case: bool) -> String {
    python::single_spaced(&bare(text, lower_case))
}

/// Cleans a text with the space before it that the class adds for SentencePiece. A text that begins with a space has
/// two.
pub(super) fn canonicalize_after_space(text: &str, lower_case: bool) -> String {
    let bare = bare(text, lower_case);
    let words = python::single_spaced(&bare);
    if words.is_empty() {
        return words;
    }
    let space = if bare.starts_with(python::is_space) {
        "▁ "
    } else {
        "▁"
    };
    format!("{space}{words}")
}

/// Removes punctuation, and capitals if `lower_case` is true.
fn bare(text: &str, lower_case: bool) -> String {
    // SentencePiece uses this character for a space.
    let mut text = text.replace('▁', " ");
    if lower_case {
        text = text.to_lowercase();
    }
    text.retain(|character| !character.is_ascii_punctuation());
    text
}

#[cfg(test)]
mod tests {
    use super::canonicalize;

    #[test]
    fn texts_lose_capitals_punctuation_and_spare_space() {
        assert_eq!(
            canonicalize(" A photo -- of a\tCat's \"toy\".", true),
            "a photo of a cats toy"
        );
        assert_eq!(canonicalize("ÉTÉ, one", false), "ÉTÉ one");
        let once = canonicalize("A, b", true);
        assert_eq!(canonicalize(&once, true), once);
    }
}
