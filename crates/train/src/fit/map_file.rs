//! The files with the maps of images.

use std::path::{Path, PathBuf};

use hipvit::error::Error;
use hipvit_data::{Annotations, Dataset, Splits};

/// A column of a list of images with their maps.
pub(super) struct MapFile {
    /// The maps, and what the model does with them.
    pub(super) maps: &'static str,
    pub(super) made: &'static str,
    pub(super) column: &'static str,
    pub(super) of: fn(&Annotations) -> Option<&PathBuf>,
}

impl MapFile {
    /// Returns the file with the map of an image.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if it has none.
    pub(super) fn of_image<'a>(&self, dataset: &'a dyn Dataset, index: usize) -> Result<&'a Path, Error> {
        let file = dataset.annotations(index).and_then(self.of);
        file.map(PathBuf::as_path).ok_or_else(|| {
            let reason = format!(
                "has no {} of {}, which the model {}. Add the column {} to metadata.jsonl",
                self.maps,
                dataset.name(index),
                self.made,
                self.column
            );
            Error::argument("data", reason)
        })
    }

    /// Checks that the first image of each split has a map.
    ///
    /// # Errors
    ///
    /// As for [`of_image`](Self::of_image).
    pub(super) fn check(&self, splits: &Splits) -> Result<(), Error> {
        let mut sets = std::iter::once(&splits.train).chain(&splits.validation);
        sets.try_for_each(|set| self.of_image(&**set, 0).map(drop))
    }
}
