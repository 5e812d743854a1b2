//! Checks of HTML pages.

/// Checks that elements nest and that text has no unescaped markup, as an XML parser does. Returns the names
/// of the elements.
pub(crate) fn elements(page: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut open: Vec<String> = Vec::new();
    assert!(
        !page.contains(|c: char| c.is_control() && c != '\n'),
        "control characters"
    );
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(!text.contains('>'), "{text}");
        for entity in text.split('&').skip(1) {
            let (name, _) = entity.split_once(';').unwrap();
            assert!(
                ["amp", "lt", "gt", "quot", "#39", "apos"].contains(&name),
                "{name}"
            );
        }
        let (tag, after) = rest[start + 1..].split_once('>').unwrap();
        rest = after;
        assert!(!tag.contains('<'), "{tag}");
        let name = tag
            .trim_matches('/')
            .split([' ', '\n'])
            .next()
            .unwrap()
            .to_owned();
        assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()), "{tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_ref(), Some(&name));
        } else {
            names.push(name.clone());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert_eq!(open, Vec::<String>::new());
    assert_eq!(rest.trim(), "");
    names
}
