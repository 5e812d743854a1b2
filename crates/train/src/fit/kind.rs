//! What a run trains: a classifier, both towers of a dual encoder, a decoder of texts, or a model of maps.

use std::path::Path;

use hipvit::error::Error;
use hipvit::model::{VisionTask, vision_task};
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
    /// Maps of depths, which a model estimates.
    Depth,
    /// Maps of objects, which a model segments by prompts.
    Masks,
    /// Boxes of objects, which a detector finds.
    Boxes,
}

impl DataKind {
    /// Returns the kind of data with the model at `model`: a directory, a configuration, or a name.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the images have labels of another kind than the model predicts.
    pub(crate) fn of(splits: &Splits, model: &Path) -> Result<Self, Error> {
        let has_annotations = splits.train.annotations(0).is_some();
        let refused = |found: &str, makes: &str, give: &str| {
            let reason = format!("has images with {found}, but {} {makes}. {give}", model.display());
            Err(Error::argument("data", reason))
        };
        let found = match (has_annotations, splits.train.has_captions()) {
            (true, _) => "maps or objects",
            (_, true) => "captions",
            _ => "classes",
        };
        match vision_task(model) {
            Some(task) => {
                let (kind, makes, give) = match task {
                    VisionTask::Depth => (
                        Self::Depth,
                        "estimates depths",
                        "Give each image a map: depth_file_name in metadata.jsonl",
                    ),
                    VisionTask::Segmentation => (
                        Self::Masks,
                        "segments objects",
                        "Give each image a map: mask_file_name in metadata.jsonl",
                    ),
                    VisionTask::Detection => (
                        Self::Boxes,
                        "detects objects",
                        "Give each image its boxes: objects in metadata.jsonl",
                    ),
                    _ => {
                        let reason =
                            format!("{} is not trained: its heads have no loss here", model.display());
                        return Err(Error::argument("model", reason));
                    }
                };
                if has_annotations {
                    Ok(kind)
                } else {
                    refused(found, makes, give)
                }
            }
            None if has_annotations => refused(
                found,
                "predicts no maps or objects",
                "Take a model of depths, masks or boxes, such as Depth Anything, SAM or RT-DETR",
            ),
            None => match (splits.train.has_captions(), makes_texts(model)) {
                (true, true) => Ok(Self::Texts),
                (true, false) => Ok(Self::Pairs),
                (false, false) => Ok(Self::Classes),
                (false, true) => refused(
                    found,
                    "makes texts",
                    "Give each image a text, such as in metadata.jsonl",
                ),
            },
        }
    }

    /// Returns the name of the shipped recipe for a run whose options name none.
    pub(crate) fn recipe(self) -> &'static str {
        match self {
            Self::Classes => "scratch-small",
            Self::Pairs => "pairs",
            Self::Texts => "texts",
            Self::Depth | Self::Masks | Self::Boxes => "maps",
        }
    }
}
