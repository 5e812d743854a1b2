//! What requests ask of models that find objects, masks or depths, and what these find.

use std::sync::Arc;

use hipvit::detect::Detection;
use hipvit::error::{Error, Result};
use hipvit::ndarray::Array2;
use hipvit::segment::{Prompt, Segmentation};

/// What a request asks of a model for an image.
#[derive(Clone, Debug)]
pub(crate) enum VisionQuery {
    /// The objects with scores above this threshold.
    Objects(f32),
    /// The masks of objects at these prompts.
    Masks(Arc<[ObjectPrompt]>),
    /// The depth of each pixel.
    Depth,
}

/// A query with the index of its image in the request.
#[derive(Clone, Debug)]
pub(crate) struct VisionRequest {
    pub(crate) query: VisionQuery,
    pub(crate) index: usize,
}

impl VisionRequest {
    /// Returns the score that objects must exceed.
    pub(super) fn threshold(&self) -> f32 {
        match self.query {
            VisionQuery::Objects(threshold) => threshold,
            VisionQuery::Masks(_) | VisionQuery::Depth => 1.0,
        }
    }
}

/// Points and a box of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectPrompt {
    /// x, y, and true for a point of the object.
    pub(crate) points: Vec<(f32, f32, bool)>,
    /// Left, top, right and bottom.
    pub(crate) corners: Option<[f32; 4]>,
}

impl ObjectPrompt {
    /// Returns the prompt for a segmenter.
    pub(super) fn prompt(&self) -> Prompt {
        let prompt = self.of_points();
        match self.corners {
            Some(corners) => prompt.within(corners),
            None => prompt,
        }
    }

    fn of_points(&self) -> Prompt {
        let points = self.points.iter();
        points.fold(Prompt::new(), |prompt, &(x, y, is_inside)| {
            prompt.point(x, y, is_inside)
        })
    }

    /// Checks that the prompt is in an image of this height and width. `place` is that of the prompt in its request.
    pub(super) fn check(&self, size: [usize; 2], place: impl Fn() -> String) -> Result<()> {
        let in_input = |input: &'static str, error: Error| match error {
            Error::Argument { reason, .. } => Error::argument(input, format!("{}: {reason}", place())),
            error => error,
        };
        if !self.points.is_empty() {
            let checked = self.of_points().check(size);
            checked.map_err(|error| in_input("input `input_points`", error))?;
        }
        let checked = self.prompt().check(size);
        checked.map_err(|error| in_input("input `input_boxes`", error))
    }
}

/// What a model finds in an image.
#[derive(Clone, Debug)]
pub(crate) enum VisionResult {
    /// Objects, the best first.
    Objects(Vec<Detection>),
    /// The masks of each prompt.
    Masks {
        prompts: Vec<Segmentation>,
        /// Height and width of the image.
        size: [usize; 2],
    },
    Depth {
        /// Depths of the model's size.
        predicted: Array2<f32>,
        /// Height and width of the image.
        size: [usize; 2],
    },
}
