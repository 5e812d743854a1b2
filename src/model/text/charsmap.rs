//! Checks SentencePiece's compiled normalisation rules (`precompiled_charsmap`). The `tokenizers` crate follows their
//! offsets without bounds checks, and panics on the first text if they are wrong.
//!
//! The rules consist of the length of a trie in bytes, the trie, and the replacements, each terminated by zero. The
//! trie is a double array of 4-byte units.

/// Error text for rules that are not valid.
pub(super) const DAMAGED: &str = "has a `precompiled_charsmap` that is damaged. Download the file again";

/// Bits of a unit that hold its label. Units with a value have the highest bit set, so that they match no byte.
const LABEL: u32 = 1 << 31 | 0xFF;
/// Flag of a unit that ends an entry. The entry's value is at the unit's offset.
const HAS_VALUE: u32 = 1 << 8;
const VALUE: u32 = (1 << 31) - 1;

/// Returns the length in bytes of the longest replacement, or `None` if a text can lead out of the trie or the
/// replacements.
pub(super) fn longest_replacement(rules: &[u8]) -> Option<usize> {
    let replacements = walk(rules)?;
    replacements.split('\0').map(str::len).max()
}

/// Visits all units that a text can reach, and returns the replacements. Returns `None` if an offset leads outside.
fn walk(rules: &[u8]) -> Option<&str> {
    let (length, rest) = rules.split_first_chunk::<4>()?;
    let units = u32::from_le_bytes(*length) as usize / 4;
    let (trie, replacements) = rest.split_at_checked(units.checked_mul(4)?)?;
    let replacements = str::from_utf8(replacements).ok()?;
    let unit = |place: usize| {
        let bytes = trie.get(4 * place..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let root = offset(unit(0)?);
    let mut visited = vec![false; units];
    *visited.get_mut(root)? = true;
    let mut bases = vec![root];
    while let Some(base) = bases.pop() {
        // A zero byte ends the search.
        for label in 1..=u8::MAX {
            let place = base ^ usize::from(label);
            let child = unit(place)?;
            if child & LABEL != u32::from(label) {
                continue;
            }
            let below = place ^ offset(child);
            let is_visited = visited.get_mut(below)?;
            if child & HAS_VALUE != 0 && !replacements.is_char_boundary((unit(below)? & VALUE) as usize) {
                return None;
            }
            if !*is_visited {
                *is_visited = true;
                bases.push(below);
            }
        }
    }
    Some(replacements)
}

/// Returns the offset from a unit to its children.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::Value;
    use tokenizers::normalizers::Precompiled;

    use super::super::limits;
    use super::*;

    const KEY: &str = "precompiled_charsmap";

    fn is_valid(rules: &[u8]) -> bool {
        longest_replacement(rules).is_some()
    }

    /// Returns rules with one entry, for "a". `root` is the offset of the root, `value` the value of the entry.
    fn rules(root: u32, value: u32, replacements: &str) -> Vec<u8> {
        let mut units = [0_u32; 256];
        units[0] = root << 10;
        units[97] = 97 | HAS_VALUE | 1 << 10;
        units[96] = 1 << 31 | value;
        let mut bytes = 1024_u32.to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(replacements.as_bytes());
        bytes
    }

    #[test]
    fn rules_that_lead_outside_are_not_valid() {
        let good = rules(0, 0, "b\0");
        assert!(is_valid(&good));
        assert_eq!(Precompiled::from(&good).unwrap().normalize_string("a c"), "b c");
        assert!(is_valid(&rules(0, 2, "b\0")));
        assert!(!is_valid(&rules(0, 3, "b\0")));
        assert!(!is_valid(&rules(0, 1, "é\0")));
        assert!(!is_valid(&rules(256, 0, "b\0")));
        for damaged in [&good[..3], &good[..1000], &[0; 4], &[0xFF; 8], &[]] {
            assert!(!is_valid(damaged), "{}", damaged.len());
        }
    }

    #[test]
    fn rules_of_a_tokenizer_are_checked_in_sequences_too() {
        let valid = |normalizer: &Value| {
            let document = serde_json::json!({"version": "1.0", "normalizer": normalizer});
            limits::check(document.to_string().as_bytes()).is_ok()
        };
        let normalizer =
            |rules: &[u8]| serde_json::json!({"type": "Precompiled", KEY: STANDARD.encode(rules)});
        let (good, bad) = (normalizer(&rules(0, 0, "b\0")), normalizer(&[0; 4]));
        assert!(valid(&good) && !valid(&bad) && valid(&Value::Null));
        let sequence = |last: &Value| serde_json::json!({"type": "Sequence", "normalizers": [good, last]});
        assert!(valid(&sequence(&good)) && !valid(&sequence(&bad)));
        // The rules are valid, but each character becomes 4 kB.
        let long = "é".repeat(2048) + "\0";
        assert_eq!(longest_replacement(&rules(0, 0, &long)), Some(4096));
        assert!(!valid(&normalizer(&rules(0, 0, &long))));
    }
}
