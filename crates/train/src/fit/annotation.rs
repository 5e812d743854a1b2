//! What a list of images says about each of them.

use hipvit::error::Error;
use hipvit_data::{Annotations, Dataset, Splits};

/// A key of a list of images.
pub(super) struct Annotation<T: 'static> {
    /// What it gives, and what the model does with it.
    pub(super) what: &'static str,
    pub(super) made: &'static str,
    /// The key in `metadata.jsonl`.
    pub(super) key: &'static str,
    pub(super) of: fn(&Annotations) -> Option<&T>,
}

impl<T> Annotation<T> {
    /// Returns what the list says about an image.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if it says nothing.
    pub(super) fn of_image<'a>(&self, dataset: &'a dyn Dataset, index: usize) -> Result<&'a T, Error> {
        dataset.annotations(index).and_then(self.of).ok_or_else(|| {
            let reason = format!(
                "has no {} of {}, which the model {}. Add {} to metadata.jsonl",
                self.what,
                dataset.name(index),
                self.made,
                self.key
            );
            Error::argument("data", reason)
        })
    }

    /// Checks the first image of each split.
    ///
    /// # Errors
    ///
    /// As for [`of_image`](Self::of_image).
    pub(super) fn check(&self, splits: &Splits) -> Result<(), Error> {
        let mut sets = std::iter::once(&splits.train).chain(&splits.validation);
        sets.try_for_each(|set| self.of_image(&**set, 0).map(drop))
    }
}
