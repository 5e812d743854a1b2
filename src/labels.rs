//! The names of a model's classes.

use std::sync::Arc;

/// One label per class, by the index of its logit. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Arc<[String]>);

impl Labels {
    /// `count` labels: those that `known` returns, and those of `unknown` for the others.
    pub(crate) fn new(
        count: usize,
        known: impl Fn(usize) -> Option<String>,
        unknown: impl Fn(usize) -> String,
    ) -> Self {
        Self(
            (0..count)
                .map(|index| known(index).unwrap_or_else(|| unknown(index)))
                .collect(),
        )
    }

    /// The label of class `index`, or `"?"` beyond the last.
    pub fn get(&self, index: usize) -> &str {
        self.0.get(index).map_or("?", String::as_str)
    }

    /// The class called `name`, if there is one.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|label| label == name)
    }

    /// The number of classes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the model has no classes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All labels in the order of the logits.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
