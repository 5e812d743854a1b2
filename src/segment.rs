//! Masks of objects in images: [`Segmenter`] runs SAM with points and boxes as prompts.

mod mask;
mod prompt;
mod training;
mod upsample;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use ndarray::{Array2, Array3, ArrayD, ArrayView2, Axis, Ix2};
use parking_lot::Mutex;

pub use self::mask::Mask;
pub use self::prompt::Prompt;
pub use self::training::MaskModel;
use crate::error::{Error, Result};
use crate::image::RgbImage;
use crate::model::{self, Checkpoint, EMBEDDING, MASKS, SCORES, SamSource, TOKENS, TensorValues};
use crate::session::{Session, SessionBuilder};
use crate::tensors::{NamedTensors, TensorArray, TensorView};

/// Maximum number of sessions of the mask decoder, one for each number of tokens. Each has its own copy of the decoder's weights.
const MAX_DECODERS: usize = 4;

/// Segments images by points and boxes.
///
/// The encoder runs once for an image. Any number of prompts can then be decoded, in batches of [`SessionBuilder::batch`].
///
/// ```
/// use hipvit::Session;
/// use hipvit::image::{Limits, open};
/// use hipvit::segment::{Prompt, Segmenter};
///
/// # fn main() -> hipvit::Result<()> {
/// let segmenter = Segmenter::load("tests/golden/segment/sam", &Session::builder())?;
/// let image = open("tests/golden/images/small.png", Limits::default())?;
/// let embedding = segmenter.encode(&image)?;
/// let prompts = [Prompt::new().inside(40.0, 30.0), Prompt::new().within([10.0, 5.0, 60.0, 50.0])];
/// for segmentation in segmenter.segment(&embedding, &prompts)? {
///     let mask = segmentation.best();
///     assert_eq!(mask.pixels.dim(), (image.height, image.width));
///     println!("{} pixels, score {:.2}", mask.area(), mask.score);
/// }
/// # Ok(()) }
/// ```
pub struct Segmenter {
    builder: SessionBuilder,
    encoder: Session,
    source: SamSource,
    /// Sessions of the mask decoder for the latest numbers of tokens, the most recent last.
    decoders: Mutex<Vec<(usize, Session)>>,
}

/// An image as the encoder of a [`Segmenter`] sees it.
#[derive(Clone, Debug)]
pub struct ImageEmbedding {
    /// Channels of each patch.
    values: Array2<f32>,
    /// Height and width of the image.
    size: [usize; 2],
    /// Height and width of the image in the model's input.
    resized: [usize; 2],
}

impl ImageEmbedding {
    /// Returns the channels of each patch, `[patches, channels]`.
    pub fn values(&self) -> ArrayView2<'_, f32> {
        self.values.view()
    }

    /// Returns height and width of the image.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }
}

/// Masks that the model predicts for a prompt. If the prompt is ambiguous, they may be of different objects, such as a part and the whole.
#[derive(Clone, Debug)]
pub struct Segmentation {
    /// Logits of each mask, `[masks, h, w]`.
    logits: Array3<f32>,
    scores: Vec<f32>,
    /// Side of the model's input.
    side: usize,
    size: [usize; 2],
    resized: [usize; 2],
}

impl Segmentation {
    /// Returns the logits of the model's masks, `[masks, h, w]`. They cover the model's input with its padding.
    pub fn logits(&self) -> &Array3<f32> {
        &self.logits
    }

    /// Returns the score of each mask: the predicted intersection over union with the object.
    pub fn scores(&self) -> &[f32] {
        &self.scores
    }

    /// Returns the index of the mask with the highest score. Among equals, the first.
    pub fn best_index(&self) -> usize {
        let mut best = 0;
        for (index, score) in self.scores.iter().enumerate() {
            if *score > self.scores[best] {
                best = index;
            }
        }
        best
    }

    /// Returns the mask with the highest score, in the size of the image.
    pub fn best(&self) -> Mask {
        self.mask_of(self.best_index())
    }

    /// Returns all masks, in the size of the image and in the order of the model.
    pub fn masks(&self) -> Vec<Mask> {
        (0..self.scores.len()).map(|index| self.mask_of(index)).collect()
    }

    /// Returns the logits of a mask in the size of the image, `[height, width]`: those of `post_process_masks` of transformers.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there is no mask of this index.
    pub fn logits_of(&self, index: usize) -> Result<Array2<f32>> {
        if index >= self.scores.len() {
            let reason = format!(
                "{index} is not one of the {} masks, counted from 0",
                self.scores.len()
            );
            return Err(Error::argument("mask", reason));
        }
        Ok(self.upsampled(index))
    }

    fn mask_of(&self, index: usize) -> Mask {
        Mask {
            score: self.scores.get(index).copied().unwrap_or(f32::NAN),
            pixels: self.upsampled(index).mapv(|logit| logit > 0.0),
        }
    }

    /// Interpolates to the model's input, drops its padding, and interpolates to the image.
    fn upsampled(&self, index: usize) -> Array2<f32> {
        let logits = self.logits.index_axis(Axis(0), index);
        let input = upsample::resized(logits, [self.side; 2], self.resized);
        upsample::resized(input.view(), self.size, self.size)
    }
}

impl Segmenter {
    /// Loads SAM from the directory `path` of transformers' `SamModel`, or by its name on the hub, such as `facebook/sam-vit-base`.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`] for a model of another type, such as SAM 2, or whose configuration is not supported.
    /// - [`Error::Argument`] for an ONNX file, or an option that SAM does not have.
    /// - The errors of [`SessionBuilder::load`] about files and devices.
    pub fn load(path: impl AsRef<Path>, builder: &SessionBuilder) -> Result<Self> {
        Self::of_source(model::sam_source(path.as_ref(), builder.load_options())?, builder)
    }

    /// Returns a segmenter of a checkpoint's model.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load).
    pub fn of_checkpoint(checkpoint: &Checkpoint, builder: &SessionBuilder) -> Result<Self> {
        let source = checkpoint.sam_with(&TensorValues::new(), builder.load_options())?;
        Self::of_source(source, builder)
    }

    fn of_source(source: SamSource, builder: &SessionBuilder) -> Result<Self> {
        Ok(Self {
            // Each image is encoded alone: one is enough work for a GPU.
            encoder: builder.clone().batch(1).of_model(source.encoder.clone())?,
            builder: builder.clone(),
            source,
            decoders: Mutex::default(),
        })
    }

    /// Returns the session of the encoder.
    pub fn session(&self) -> &Session {
        &self.encoder
    }

    /// Returns the number of masks that the model predicts for each prompt.
    pub fn masks_per_prompt(&self) -> usize {
        self.source.masks
    }

    /// Returns the height and the width of the masks that the model predicts, before they are interpolated to the size of the image.
    pub fn mask_side(&self) -> usize {
        self.source.mask_side
    }

    /// Checks that an image can be resized to the model's size.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for an image so thin that a side would shrink to nothing.
    pub fn check(&self, image: &RgbImage) -> Result<()> {
        self.source.check(image)
    }

    /// Returns the pixel values that the encoder gets for an image, `[3, H, W]`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for an image so thin that a side would shrink to nothing.
    pub fn pixel_values(&self, image: &RgbImage) -> Result<Array3<f32>> {
        let side = self.source.side;
        let values = Array3::from_shape_vec((3, side, side), self.source.pixel_values(image)?);
        values.map_err(|error| Error::internal("pixel values", error))
    }

    /// Runs the encoder on an image, which is resized and padded to the model's size as `SamImageProcessor` of transformers does.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] for an image so thin that a side would shrink to nothing.
    /// - [`Error::NonFinite`] for a [strict](SessionBuilder::strict) session.
    /// - A device error.
    pub fn encode(&self, image: &RgbImage) -> Result<ImageEmbedding> {
        let size = [image.height, image.width];
        let values = self.pixel_values(image)?.insert_axis(Axis(0));
        let inputs = self.encoder.tensor_inputs();
        let name = inputs.first().map_or("", |input| input.name.as_str());
        let results = self.encoder.run_tensors([(name, TensorView::from(&values))])?;
        let embedding = output(&results, EMBEDDING)?.index_axis_move(Axis(0), 0);
        let embedding = embedding.into_dimensionality::<Ix2>();
        Ok(ImageEmbedding {
            values: embedding.map_err(|error| Error::internal(EMBEDDING, error))?,
            size,
            resized: self.source.resized(size),
        })
    }

    /// Predicts the masks of each prompt, in the order of the prompts.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] for a prompt that is not in the image, see [`Prompt::check`], or an embedding of another model.
    /// - [`Error::NonFinite`] for a [strict](SessionBuilder::strict) session.
    /// - A device error.
    pub fn segment(&self, embedding: &ImageEmbedding, prompts: &[Prompt]) -> Result<Vec<Segmentation>> {
        let expected = self.source.mask_side.pow(2) / 16;
        if embedding.values.dim() != (expected, self.source.dim) {
            let reason = format!(
                "has {:?} values, but the model's are {:?}. Encode the image with this model",
                embedding.values.dim(),
                (expected, self.source.dim)
            );
            return Err(Error::argument("embedding", reason));
        }
        // Prompts of equally many tokens share batches.
        let mut by_count: BTreeMap<usize, Vec<(usize, Vec<f32>)>> = BTreeMap::new();
        for (index, prompt) in prompts.iter().enumerate() {
            prompt.check(embedding.size)?;
            let factors = [0, 1].map(|axis| embedding.resized[axis] as f64 / embedding.size[axis] as f64);
            let (points, corners) = (prompt.scaled_points(factors), prompt.scaled_corners(factors));
            let tokens = self.source.prompts.tokens(&points, corners);
            by_count
                .entry(tokens.len() / self.source.dim)
                .or_default()
                .push((index, tokens));
        }
        let mut all: Vec<Option<Segmentation>> = vec![None; prompts.len()];
        for (count, group) in by_count {
            let decoder = self.decoder(count)?;
            for part in group.chunks(decoder.batch()) {
                let tokens = part
                    .iter()
                    .flat_map(|(_, tokens)| tokens.iter().copied())
                    .collect();
                let tokens = Array3::from_shape_vec((part.len(), count, self.source.dim), tokens);
                let tokens = tokens.map_err(|error| Error::internal(TOKENS, error))?;
                let found = self.decode(&decoder, embedding, &tokens)?;
                for (&(index, _), segmentation) in part.iter().zip(found) {
                    all[index] = Some(segmentation);
                }
            }
        }
        let missing = || Error::internal("masks", "of a prompt are missing");
        all.into_iter().map(|found| found.ok_or_else(missing)).collect()
    }

    /// Returns the session of the decoder for prompts of this many tokens.
    fn decoder(&self, tokens: usize) -> Result<Session> {
        let mut decoders = self.decoders.lock();
        let known = decoders.iter().position(|&(known, _)| known == tokens);
        let session = match known {
            Some(index) => decoders.remove(index).1,
            None => {
                // Free the memory of the oldest before the new one needs it.
                let excess = (decoders.len() + 1).saturating_sub(MAX_DECODERS);
                decoders.drain(..excess);
                self.builder.of_model(self.source.decoder_of(tokens)?)?
            }
        };
        decoders.push((tokens, session.clone()));
        Ok(session)
    }

    /// Runs the decoder on the tokens of some prompts.
    fn decode(
        &self,
        decoder: &Session,
        embedding: &ImageEmbedding,
        tokens: &Array3<f32>,
    ) -> Result<Vec<Segmentation>> {
        let image = embedding.values.view().insert_axis(Axis(0));
        let inputs = [
            (TOKENS, TensorView::from(tokens)),
            (EMBEDDING, TensorView::from(image)),
        ];
        let results = decoder.run_tensors(inputs)?;
        let (logits, scores) = (output(&results, MASKS)?, output(&results, SCORES)?);
        let side = self.source.mask_side;
        let of_prompt = |index: usize| {
            let logits = logits.index_axis(Axis(0), index);
            let masks = logits.len_of(Axis(0));
            let logits = logits.to_shape((masks, side, side));
            Ok(Segmentation {
                logits: logits
                    .map_err(|error| Error::internal(MASKS, error))?
                    .into_owned(),
                scores: scores.index_axis(Axis(0), index).iter().copied().collect(),
                side: self.source.side,
                size: embedding.size,
                resized: embedding.resized,
            })
        };
        (0..tokens.dim().0).map(of_prompt).collect()
    }
}

impl fmt::Debug for Segmenter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segmenter")
            .field("encoder", &self.encoder)
            .finish_non_exhaustive()
    }
}

fn output(results: &NamedTensors, name: &'static str) -> Result<ArrayD<f32>> {
    match results.get(name) {
        Some(TensorArray::F32(values)) => Ok(values.clone()),
        _ => Err(Error::internal(name, "is missing")),
    }
}
