//! How SigLIP's tokenizer prepares a text: as in training, in lower case and without punctuation.

/// As transformers' `SiglipTokenizer.canonicalize_text`. Doing it twice changes nothing, so that it does not matter whether
/// `tokenizer.json` has it too.
pub(super) fn canonicalize(text: &str, lower_case: bool) -> String {
    let lower = match lower_case {
        true => text.to_lowercase(),
        false => text.to_owned(),
    };
    let bare: String = lower.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    bare.split_whitespace().collect::<Vec<_>>().join(" ")
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
