//! Finds known names that resemble a mistyped or unknown one, for error messages.

/// Minimum similarity of a name to be shown: one or two letters differ, or the beginning is common.
const SIMILAR: f64 = 0.84;
/// Maximum number of similar names that are shown.
const SHOWN: usize = 3;

/// Returns what to show for the spellings that resemble `name`, nearest first. Case and separators do not count.
///
/// `known` has pairs of a spelling and what to show for it.
pub fn nearest<S: AsRef<str>, T: PartialEq>(name: &str, known: impl IntoIterator<Item = (S, T)>) -> Vec<T> {
    let name = plain(name);
    let mut similar: Vec<(f64, T)> = known
        .into_iter()
        .map(|(spelling, shown)| (strsim::jaro_winkler(&name, &plain(spelling.as_ref())), shown))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .collect();
    similar.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut nearest = Vec::new();
    for (_, shown) in similar {
        if nearest.len() < SHOWN && !nearest.contains(&shown) {
            nearest.push(shown);
        }
    }
    nearest
}

/// Returns an error text with the supported names that resemble `name`.
pub(crate) fn near(name: &str, supported: impl IntoIterator<Item = String>) -> String {
    let near = nearest(name, supported.into_iter().map(|name| (name.clone(), name)));
    if near.is_empty() {
        String::new()
    } else {
        format!("; near it: {}", near.join(", "))
    }
}

/// Maximum number of names that are shown because they contain the words.
const SHOWN_BY_WORDS: usize = 6;

/// Returns what to show for the spellings that have every word of `name`, in singular or plural, otherwise for the
/// [`nearest`].
///
/// `known` has pairs of a spelling and what to show for it. Spellings that end with the last word come first, because
/// their last word is the noun.
pub(crate) fn nearest_by_words<S: AsRef<str>, T: PartialEq>(
    name: &str,
    known: impl IntoIterator<Item = (S, T)>,
) -> Vec<T> {
    let known: Vec<(S, T)> = known.into_iter().collect();
    let plain_name = plain(name);
    let wanted: Vec<&str> = words(&plain_name).collect();
    let (mut ending, mut others, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for (spelling, shown) in known {
        let plain = plain(spelling.as_ref());
        let has: Vec<&str> = words(&plain).collect();
        let all = !wanted.is_empty()
            && wanted
                .iter()
                .all(|word| has.iter().any(|other| is_same_noun(word, other)));
        let ends = wanted.last().zip(has.last());
        let list = match (all, ends.is_some_and(|(word, other)| is_same_noun(word, other))) {
            (true, true) => &mut ending,
            (true, false) => &mut others,
            (false, _) => {
                rest.push((spelling, shown));
                continue;
            }
        };
        if !list.contains(&shown) {
            list.push(shown);
        }
    }
    others.retain(|shown| !ending.contains(shown));
    let mut found = ending;
    found.append(&mut others);
    found.truncate(SHOWN_BY_WORDS);
    if found.len() < SHOWN {
        let similar = nearest(name, rest);
        let new: Vec<T> = similar
            .into_iter()
            .filter(|shown| !found.contains(shown))
            .collect();
        found.extend(new);
        found.truncate(SHOWN);
    }
    found
}

/// Splits a plain name into words.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
}

/// Returns true if two words are equal, or one is the plural of the other.
fn is_same_noun(a: &str, b: &str) -> bool {
    let is_plural = |long: &str, short: &str| match long.strip_prefix(short) {
        Some(ending) => matches!(ending, "" | "s" | "es"),
        None => long
            .strip_suffix("ies")
            .is_some_and(|stem| short.strip_suffix('y') == Some(stem)),
    };
    is_plural(a, b) || is_plural(b, a)
}

/// Normalises a name: lower case, with spaces between words.
pub fn plain(name: &str) -> String {
    name.trim().replace(['_', '-'], " ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_strangers_not_at_all() {
        let of = |name| {
            nearest(
                name,
                ["vit", "deit", "dinov2", "dinov2_with_registers", "clip", "siglip"].map(|n| (n, n)),
            )
        };
        assert_eq!(of("dinov3_vit"), ["dinov2"]);
        assert_eq!(of("siglip2"), ["siglip"]);
        assert_eq!(of("DEIT"), ["deit"]);
        assert!(of("resnet").is_empty());
        assert!(of("").is_empty());
    }

    #[test]
    fn whole_words_come_before_similar_spellings() {
        let of = |name| {
            nearest_by_words(
                name,
                [
                    "crate",
                    "cat bear",
                    "tabby cat",
                    "carton",
                    "Persian cat",
                    "polecat",
                    "cherry",
                ]
                .map(|n| (n, n)),
            )
        };
        assert_eq!(of("cat"), ["tabby cat", "Persian cat", "cat bear"]);
        assert_eq!(of("Cats"), ["tabby cat", "Persian cat", "cat bear"]);
        assert_eq!(of("cat_persian")[0], "Persian cat");
        assert_eq!(of("cherries"), ["cherry"]);
        // Fewer than three names have the word, so similar spellings follow.
        assert_eq!(of("carton")[0], "carton");
        assert_eq!(of("cartn"), ["carton"]);
        assert!(of("").is_empty() && of("zzz").is_empty());
    }
}
