//! What a run trains: a classifier, both towers of a dual encoder, or a decoder of texts.

use std::path::Path;

use hipvit::error::Error;
use hipvit_data::Splits;
use hipvit_generate::makes_texts;

/// Kind of the labels of a run's images, for its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataKind {
    /// Classes.
    Classes,
    /// Captions, which a dual encoder compares with images.
    Pairs,
    /// Texts, which a decoder makes of images.
    Texts,
}

impl DataKind {
    /// Returns the kind of data with the model at `model`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the images have classes, but the model makes texts.
    pub(crate) fn of(splits: &Splits, model: &Path) -> Result<Self, Error> {
        match (splits.train.has_captions(), makes_texts(model)) {
            (true, true) => Ok(Self::Texts),
            (true, false) => Ok(Self::Pairs),
            (false, false) => Ok(Self::Classes),
            (false, true) => {
                let reason = format!(
                    "has images with classes, but {} makes texts. Give each image a text, such as in metadata.jsonl",
                    model.display()
                );
                Err(Error::argument("data", reason))
            }
        }
    }
}
