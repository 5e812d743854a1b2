//! Finds the class that a user names by id, label, index or synonym.

use super::{Labels, synonyms};
use crate::error::{Error, Result};
use crate::nearest::{nearest_by_words, plain};

impl Labels {
    /// Returns the index of the class that `text` names.
    ///
    /// `text` is an id, a label, an index, or a synonym from a label that lists several between commas. Synonyms match
    /// regardless of case and separators: `Golden_Retriever` is `golden retriever`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if no class or several classes match. The error suggests similar names, or lists the
    /// classes that match.
    pub fn find(&self, text: &str) -> Result<usize> {
        self.find_among(text, self.len())
    }

    /// Finds a class like [`find`](Self::find), in a model with `classes` classes. A model with one logit has two
    /// classes.
    pub(crate) fn find_among(&self, text: &str, classes: usize) -> Result<usize> {
        let all =
            |matches: &dyn Fn(usize) -> bool| (0..self.len()).filter(|&i| matches(i)).collect::<Vec<_>>();
        let text = text.trim();
        let mut found = all(&|index| self.id(index) == Some(text));
        if found.is_empty() {
            found = all(&|index| self.get(index) == text);
        }
        if found.is_empty() {
            found.extend(text.parse().ok().filter(|&index: &usize| index < classes));
        }
        if found.is_empty() && !text.is_empty() {
            let text = plain(text);
            found = all(&|index| {
                let label = self.get(index);
                plain(label) == text || synonyms(label).any(|synonym| plain(synonym) == text)
            });
        }
        match found[..] {
            [class] => Ok(class),
            [] => Err(Error::argument("class", self.unknown(text, classes))),
            _ => {
                let each: Vec<String> = found.iter().map(|&index| self.describe(index)).collect();
                let reason = format!("\"{text}\" is the name of several classes: {}", each.join("; "));
                Err(Error::argument("class", reason))
            }
        }
    }

    /// Returns the error text for a `text` that names no class.
    fn unknown(&self, text: &str, classes: usize) -> String {
        let id = match self.id(0) {
            Some(id) => format!("an id such as {id}, "),
            None => String::new(),
        };
        let label = if self.is_empty() {
            String::new()
        } else {
            format!("a label such as \"{}\", ", self.get(0))
        };
        let last = classes.saturating_sub(1);
        let spellings = self
            .iter()
            .flat_map(|label| synonyms(label).map(move |synonym| (synonym, label)));
        let near: Vec<String> = nearest_by_words(text, spellings)
            .iter()
            .map(|label| format!("\"{label}\""))
            .collect();
        let near = if near.is_empty() {
            String::new()
        } else {
            format!("; near it: {}", near.join(", "))
        };
        format!(
            "\"{text}\" is not one of the model's {classes} classes; expected {id}{label}or an index from 0 to {last}{near}"
        )
    }

    fn describe(&self, index: usize) -> String {
        match self.id(index) {
            Some(id) => format!("{id} ({index}, \"{}\")", self.get(index)),
            None => format!("{index} (\"{}\")", self.get(index)),
        }
    }
}
