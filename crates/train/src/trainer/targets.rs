//! The targets of a batch.

use std::ops::Range;

use hipvit::error::{Error, Result};

use crate::objective::Objective;

/// Number of places of a prompt.
const PROMPT_TOKENS: usize = 2;

/// Targets of a batch. Made of a slice, it has no logits of a teacher.
#[derive(Clone, Copy, Debug, Default)]
pub struct Targets<'a> {
    /// Rows of the images, by the objective:
    ///
    /// - `[images, classes]`: probabilities of the classes, or values for [`LossKind::MeanSquaredError`](crate::LossKind::MeanSquaredError)
    /// - `[images, channels]` for [`Objective::Contrastive`]: embeddings of the texts, of any length
    /// - `[images, pixels]` for [`Objective::Depth`]: depths or inverse depths, and a negative number where they are unknown
    /// - `[images, objects, 5]` for [`Objective::Boxes`]: class, and centre, width and height relative to the image. The class is -1 in rows without
    ///   an object.
    pub values: &'a [f32],
    /// `[images, classes]`: logits of the teacher for the same images. Only for [`Objective::Distillation`].
    pub teacher: &'a [f32],
    /// Texts of the images, in place of values. Only for [`Objective::Pairs`].
    pub texts: Texts<'a>,
    /// Texts that a decoder makes of the images, in place of values. Only for [`Objective::Texts`].
    pub sequences: Sequences<'a>,
    /// Prompts of the images, beside values. Only for [`Objective::Masks`].
    pub prompts: Prompts<'a>,
}

/// Prompts of a batch, in the form of [`PromptRow`](hipvit::model::PromptRow)s.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prompts<'a> {
    /// `[images, 2, channels]`: vectors of places.
    pub positions: &'a [f32],
    /// `[images, 2]`: kinds of places.
    pub kinds: &'a [i32],
}

/// Texts of a batch, in the form of [`TextInput`](hipvit::model::TextInput)s.
#[derive(Clone, Copy, Debug, Default)]
pub struct Texts<'a> {
    /// `[images, tokens]`: ids of the tokens, of any value after a text's last one.
    pub tokens: &'a [i32],
    /// `[images, tokens]`: 1 for the token that represents the text, and 0 for the others. Empty if that is the same token for all texts.
    pub places: &'a [f32],
}

/// Texts that a decoder makes, in the form of [`TextRow`](hipvit_generate::TextRow)s.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequences<'a> {
    /// `[images, tokens]`: ids of the tokens that the decoder reads.
    pub tokens: &'a [i32],
    /// `[images, tokens]`: rows of its table of positions.
    pub positions: &'a [i32],
    /// `[images, tokens]`: ids of the tokens that follow, or -100 for those that the loss leaves out.
    pub labels: &'a [i32],
}

impl<'a> From<Sequences<'a>> for Targets<'a> {
    fn from(sequences: Sequences<'a>) -> Self {
        Self {
            sequences,
            ..Self::default()
        }
    }
}

impl<'a> From<Texts<'a>> for Targets<'a> {
    fn from(texts: Texts<'a>) -> Self {
        Self {
            texts,
            ..Self::default()
        }
    }
}

impl<'a> From<&'a [f32]> for Targets<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}

impl<'a> From<&'a Vec<f32>> for Targets<'a> {
    fn from(values: &'a Vec<f32>) -> Self {
        Self::from(values.as_slice())
    }
}

impl<'a> Targets<'a> {
    /// Returns the number of images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if these are not rows of `width` targets, or if the logits of the teacher are missing.
    pub(super) fn images(&self, width: usize, objective: &Objective) -> Result<usize> {
        if objective.has_texts() {
            return self.texts.images(width);
        }
        if objective.has_labels() {
            return self.sequences.images(width);
        }
        let len = self.values.len();
        if width == 0 || len == 0 || !len.is_multiple_of(width) {
            let what = if objective.has_classes() {
                "classes"
            } else if objective.has_maps() {
                "pixels"
            } else if objective.has_boxes() {
                "numbers, 5 for each object"
            } else {
                "channels"
            };
            let reason = format!("{len} were given, which are not rows of {width} {what}");
            return Err(Error::argument("targets", reason));
        }
        let expected = if objective.has_teacher() { len } else { 0 };
        if self.teacher.len() != expected {
            let reason = format!(
                "has {} logits, expected {expected}: {}",
                self.teacher.len(),
                if expected > 0 {
                    "a row for each image of the batch"
                } else {
                    "the loss compares none"
                }
            );
            return Err(Error::argument("teacher", reason));
        }
        let images = len / width;
        let Prompts { positions, kinds } = self.prompts;
        let places = if objective.has_prompts() { images } else { 0 };
        if kinds.len() != places * PROMPT_TOKENS || !positions.len().is_multiple_of(places.max(1)) {
            let reason = format!("{} kinds were given for {images} images", kinds.len());
            return Err(Error::argument("prompts", reason));
        }
        Ok(images)
    }

    /// Returns the number of objects.
    pub(super) fn objects(&self) -> usize {
        self.values
            .chunks_exact(5)
            .filter(|object| object[0] >= 0.0)
            .count()
    }

    /// Returns the targets of the images `part`.
    pub(super) fn rows(&self, width: usize, part: &Range<usize>) -> Self {
        let rows = part.start * width..part.end * width;
        Self {
            values: self.values.get(rows.clone()).unwrap_or_default(),
            teacher: self.teacher.get(rows.clone()).unwrap_or_default(),
            texts: Texts {
                tokens: self.texts.tokens.get(rows.clone()).unwrap_or_default(),
                places: self.texts.places.get(rows.clone()).unwrap_or_default(),
            },
            sequences: Sequences {
                tokens: self.sequences.tokens.get(rows.clone()).unwrap_or_default(),
                positions: self.sequences.positions.get(rows.clone()).unwrap_or_default(),
                labels: self.sequences.labels.get(rows).unwrap_or_default(),
            },
            prompts: self.prompts.rows(part),
        }
    }
}

impl Prompts<'_> {
    /// Returns the prompts of the images `part`.
    fn rows(&self, part: &Range<usize>) -> Self {
        let images = self.kinds.len() / PROMPT_TOKENS;
        let width = self.positions.len() / images.max(1);
        let positions = self.positions.get(part.start * width..part.end * width);
        let kinds = self
            .kinds
            .get(part.start * PROMPT_TOKENS..part.end * PROMPT_TOKENS);
        Self {
            positions: positions.unwrap_or_default(),
            kinds: kinds.unwrap_or_default(),
        }
    }
}

impl Sequences<'_> {
    /// Returns the number of tokens that the loss does not leave out.
    pub(super) fn counted(&self) -> usize {
        self.labels.iter().filter(|&&label| label >= 0).count()
    }

    /// Returns the number of texts of `width` tokens.
    fn images(&self, width: usize) -> Result<usize> {
        let lens = [self.tokens.len(), self.positions.len(), self.labels.len()];
        let len = lens[0];
        let is_whole = width > 0 && len > 0 && len.is_multiple_of(width);
        if !is_whole || lens != [len; 3] {
            let reason = format!(
                "{} tokens, {} positions and {} labels were given, which are not rows of {width}",
                lens[0], lens[1], lens[2]
            );
            return Err(Error::argument("texts", reason));
        }
        if self.counted() == 0 {
            return Err(Error::argument("texts", "have no token that the loss counts"));
        }
        Ok(len / width)
    }
}

impl Texts<'_> {
    /// Returns the number of texts of `width` tokens.
    fn images(&self, width: usize) -> Result<usize> {
        let (len, places) = (self.tokens.len(), self.places.len());
        let is_whole = width > 0 && len > 0 && len.is_multiple_of(width);
        if is_whole && (places == 0 || places == len) {
            return Ok(len / width);
        }
        let reason = format!("{len} tokens and {places} places were given, which are not rows of {width}");
        Err(Error::argument("texts", reason))
    }
}
