//! Drafts of the next tokens of a text, which one step checks together (speculative decoding).
//!
//! Without a [draft model](crate::Generator::load_draft_model), a draft is what followed the last tokens of the text where they occurred before. It costs nothing but rows of the step, and is good for texts that repeat
//! themselves (Saxena, 2023, *Prompt Lookup Decoding*, <https://github.com/apoorvumang/prompt-lookup-decoding>).

/// Largest number of last tokens that are looked up.
const MATCHED: usize = 3;

/// Use of drafts since a generator was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speculation {
    /// Tokens of the texts.
    pub tokens: usize,
    /// Steps of the texts: a step counts once for each text in it.
    pub steps: usize,
    /// Tokens of the drafts.
    pub drafted: usize,
    /// Tokens of the drafts that the model chose too.
    pub accepted: usize,
}

/// Returns at most `most` tokens that may follow `tokens`. Empty if the last token is a new one.
pub(crate) fn lookup(tokens: &[u32], most: usize) -> Vec<u32> {
    if most == 0 {
        return Vec::new();
    }
    for matched in (1..=MATCHED.min(tokens.len().saturating_sub(1))).rev() {
        let (before, last) = tokens.split_at(tokens.len() - matched);
        // The latest occurrence that ends before the last token.
        let starts = (0..before.len()).rev();
        let mut found = starts.filter(|&start| tokens[start..].starts_with(last));
        if let Some(start) = found.next() {
            let following = &tokens[start + matched..];
            return following.iter().take(most).copied().collect();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_follow_the_longest_latest_match() {
        assert_eq!(lookup(&[1, 2, 3, 9, 1, 2, 3], 2), [9, 1]);
        // The end of the text ends the draft.
        assert_eq!(lookup(&[1, 2, 3, 9, 1, 2, 3], 10), [9, 1, 2, 3]);
        // Two tokens match later than one, but the longer match wins.
        assert_eq!(lookup(&[5, 6, 7, 6, 8, 5, 6], 1), [7]);
        assert_eq!(lookup(&[6, 7, 6, 8, 6], 1), [8]);
        assert_eq!(lookup(&[4, 4], 3), [4]);
        for (tokens, most) in [(&[1, 2, 3][..], 4), (&[1], 4), (&[], 4), (&[1, 1], 0)] {
            assert!(lookup(tokens, most).is_empty());
        }
    }
}
