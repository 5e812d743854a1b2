//! The names that a mistyped or unknown one may have meant, for error messages.

/// From this similarity on, a name is worth showing: one or two letters off, or a common beginning.
const SIMILAR: f64 = 0.84;
/// No more than these are shown.
const SHOWN: usize = 3;

/// Of `known`, pairs of a spelling and what to show for it, those whose spelling is near `name`, the nearest first. Case and
/// the kind of separator do not count.
pub(crate) fn nearest<S: AsRef<str>, T: PartialEq>(
    name: &str,
    known: impl IntoIterator<Item = (S, T)>,
) -> Vec<T> {
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

/// Lower case, with spaces between words.
pub(crate) fn plain(name: &str) -> String {
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
}
