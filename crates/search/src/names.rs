//! Names of rows.

use std::borrow::Cow;

/// Names of the rows of a shard.
#[derive(Debug)]
pub(crate) enum Names {
    /// The file has no names.
    None,
    /// One name per line, escaped as in JSON strings.
    Lines {
        /// Content of the file.
        text: String,
        /// Position of the end of each line.
        ends: Vec<usize>,
    },
    /// Names that are not escaped.
    List(Vec<String>),
}

impl Names {
    /// Returns the names in a text with one name per line.
    pub(crate) fn lines(text: String) -> Self {
        let mut ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        if ends.last().map_or(0, |end| end + 1) < text.len() {
            ends.push(text.len());
        }
        Self::Lines { text, ends }
    }

    /// Returns the number of names. `None` if the file has no names.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Lines { ends, .. } => Some(ends.len()),
            Self::List(names) => Some(names.len()),
        }
    }

    /// Returns the name of a row.
    pub(crate) fn get(&self, row: usize) -> Option<Cow<'_, str>> {
        match self {
            Self::None => None,
            Self::Lines { text, ends } => {
                let begin = row.checked_sub(1).map_or(0, |previous| ends[previous] + 1);
                let line = text.get(begin..*ends.get(row)?)?;
                if !line.contains('\\') {
                    return Some(Cow::Borrowed(line));
                }
                // A line that is not escaped is its own name.
                Some(serde_json::from_str(&format!("\"{line}\"")).map_or(Cow::Borrowed(line), Cow::Owned))
            }
            Self::List(names) => names.get(row).map(|name| Cow::Borrowed(name.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_unescaped() {
        let names = Names::lines("a.png\nline\\nbreak \\\"q\\\"\n\nlast".to_owned());
        assert_eq!(names.len(), Some(4));
        let all: Vec<String> = (0..4).map(|row| names.get(row).unwrap().into_owned()).collect();
        assert_eq!(all, ["a.png", "line\nbreak \"q\"", "", "last"]);
        assert_eq!(Names::lines(String::new()).len(), Some(0));
    }
}
