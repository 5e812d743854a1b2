//! How SigLIP's tokenizer prepares a text: as in training, in lower case and without punctuation.

use super::python;

/// A text as transformers' `SiglipTokenizer` cleans it. Doing it twice changes nothing, so that `tokenizer.json` may do it too.
pub(super) fn canonicalize(text: &str, lower_case: bool) -> String {
    python::single_spaced(&bare(text, lower_case))
}

/// A clean text after the space that the class puts before it for SentencePiece. A text that begins with a space has two.
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

/// A text without capitals and punctuation.
fn bare(text: &str, lower_case: bool) -> String {
    // SentencePiece has this character for a space.
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
