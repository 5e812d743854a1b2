//! Zero-shot classification: an image gets the label whose text embedding is nearest to the embedding of the image.
//!
//! This requires a model that was trained on images and their captions.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

use crate::error::{Error, Result};
use crate::image::RgbImage;
use crate::labels::Labels;
use crate::model::TextTower;
use crate::outputs::{Outputs, Prediction, Scores, clamped_norm};
use crate::session::Session;

/// Placeholder for the label in a template.
pub const PLACE: &str = "{}";

/// Options of [`Session::zero_shot_with`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ZeroShotOptions {
    templates: Vec<String>,
}

impl ZeroShotOptions {
    /// Returns the defaults: without templates, a label is its own text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a template: a text with `{}` in place of the label, such as `a photo of a {}.`.
    ///
    /// With several templates, the embedding of a label is the mean of its texts' unit-length embeddings.
    pub fn template(mut self, template: impl Into<String>) -> Self {
        self.templates.push(template.into());
        self
    }

    /// Adds several [templates](Self::template).
    pub fn templates<T: Into<String>>(mut self, templates: impl IntoIterator<Item = T>) -> Self {
        self.templates.extend(templates.into_iter().map(Into::into));
        self
    }
}

/// Classifier made of the embeddings of label texts, without a trained classification head. Made by
/// [`Session::zero_shot`] and reusable for any number of images.
///
/// ```
/// # fn main() -> hipvit::Result<()> {
/// use hipvit::image::{Limits, open};
/// use hipvit::{Session, ZeroShotOptions};
///
/// let session = Session::load("tests/golden/zero_shot/hf_clip")?;
/// let options = ZeroShotOptions::new().template("a photo of a {}.").template("a drawing of a {}.");
/// let zero_shot = session.zero_shot_with(["cat", "dog"], &options)?;
///
/// let outputs = zero_shot.classify([open("tests/golden/images/photo.jpg", Limits::default())?])?;
/// for prediction in outputs.image(0).top(2) {
///     println!("{:.2} %  {}", 100.0 * prediction.probability, prediction.label);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ZeroShot {
    session: Session,
    classifier: Classifier,
    truncated: Vec<String>,
}

impl Session {
    /// Embeds the texts of `labels` and returns a classifier. The text of a label is the label itself, such as `a photo
    /// of a cat`; [`zero_shot_with`](Self::zero_shot_with) takes templates.
    ///
    /// ```
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::Session;
    /// use hipvit::image::{Limits, open};
    ///
    /// let session = Session::load("tests/golden/zero_shot/hf_siglip")?;
    /// let zero_shot = session.zero_shot(["a photo of a cat", "a photo of a dog"])?;
    /// let outputs = zero_shot.classify([open("tests/golden/images/photo.jpg", Limits::default())?])?;
    /// println!("{}", outputs.image(0).top(1)[0].label);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if there is no label or a label is blank, and the errors of
    /// [`embed_texts`](Self::embed_texts).
    pub fn zero_shot<T: AsRef<str>>(&self, labels: impl IntoIterator<Item = T>) -> Result<ZeroShot> {
        self.zero_shot_with(labels, &ZeroShotOptions::new())
    }

    /// Embeds the texts of `labels` like [`zero_shot`](Self::zero_shot), with templates.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] for a template without `{}`, and the errors of [`zero_shot`](Self::zero_shot).
    pub fn zero_shot_with<T: AsRef<str>>(
        &self,
        labels: impl IntoIterator<Item = T>,
        options: &ZeroShotOptions,
    ) -> Result<ZeroShot> {
        let tower = self.text_tower()?;
        let labels = labels.into_iter().map(|label| label.as_ref().to_owned());
        let prompts = Prompts::new(labels.collect(), &options.templates)?;
        let embedded = self.embed_texts_once(prompts.texts())?;
        let width = embedded.embeddings.ncols();
        let of_images = self.no_outputs()?.embeddings().ncols();
        if width != of_images {
            let reason = format!(
                "texts have embeddings of {width} channels, but images of {of_images}. They cannot be compared"
            );
            return Err(Error::config(self.name(), reason));
        }
        let truncated = embedded.truncated.iter();
        let truncated = truncated.map(|&index| prompts.texts()[index].clone()).collect();
        Ok(ZeroShot {
            session: self.clone(),
            classifier: Classifier::new(&prompts, embedded.embeddings.view(), tower.similarity()),
            truncated,
        })
    }
}

/// Labels, and the texts to embed for them: each template with the label filled in.
#[derive(Clone, Debug)]
pub struct Prompts {
    labels: Vec<String>,
    /// All texts of the first label, then all texts of the second, and so on.
    texts: Vec<String>,
}

impl Prompts {
    /// Checks the labels and fills the templates. Without templates, the labels are the texts.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if there is no label, a label is blank, or a template lacks `{}`.
    pub fn new(labels: Vec<String>, templates: &[String]) -> Result<Self> {
        if labels.is_empty() {
            return Err(Error::argument(
                "labels",
                "the list is empty. Give at least one label",
            ));
        }
        if let Some(blank) = labels.iter().position(|label| label.trim().is_empty()) {
            let reason = format!("label {blank}, counted from 0, is blank");
            return Err(Error::argument("labels", reason));
        }
        if let Some(template) = templates.iter().find(|text| !text.contains(PLACE)) {
            let reason = format!(
                "\"{template}\" has no {PLACE} where the label goes, as \"a photo of a {PLACE}.\" has"
            );
            return Err(Error::argument("template", reason));
        }
        let texts = if templates.is_empty() {
            labels.clone()
        } else {
            let of_label = |label| templates.iter().map(move |text| text.replace(PLACE, label));
            labels.iter().flat_map(|label| of_label(label)).collect()
        };
        Ok(Self { labels, texts })
    }

    /// Returns the labels, without templates.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Returns the texts to embed.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// Parameters by which a dual encoder compares an image with a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Similarity {
    /// Factor of the cosine similarity.
    pub(crate) scale: f64,
    /// Bias added to the scaled similarity.
    pub(crate) bias: f64,
    /// Function that converts logits to probabilities.
    pub(crate) scores: Scores,
}

impl TextTower {
    /// Returns the parameters by which the model compares an image with a text.
    pub fn similarity(&self) -> Similarity {
        let [scale, bias] = self.scale_and_bias();
        Similarity {
            scale,
            bias,
            scores: self.scores(),
        }
    }
}

/// Labels with their embeddings, for comparison with images.
#[derive(Clone, Debug)]
pub struct Classifier {
    labels: Labels,
    /// Embeddings as `[labels, D]`, each of unit length.
    embeddings: Array2<f32>,
    similarity: Similarity,
}

impl Classifier {
    /// Averages the embeddings of each label's texts. `texts` is `[texts, D]`.
    pub fn new(prompts: &Prompts, texts: ArrayView2<'_, f32>, similarity: Similarity) -> Self {
        let width = texts.ncols();
        let texts_each = prompts.texts.len() / prompts.labels.len().max(1);
        let mut embeddings = Array2::zeros((prompts.labels.len(), width));
        for (label, mut row) in embeddings.rows_mut().into_iter().enumerate() {
            let mut sum = vec![0.0; width];
            for text in 0..texts_each {
                let unit = unit(texts.row(label * texts_each + text));
                sum.iter_mut().zip(unit).for_each(|(sum, value)| *sum += value);
            }
            // With one text per label, the sum has length 1 already.
            let norm = clamped_norm(sum.iter().copied());
            row.iter_mut()
                .zip(sum)
                .for_each(|(value, sum)| *value = (sum / norm) as f32);
        }
        Self {
            labels: prompts.labels.iter().collect(),
            embeddings,
            similarity,
        }
    }

    /// Returns the labels, in the order of the logits.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the embeddings as `[labels, D]`, each of unit length.
    pub fn embeddings(&self) -> &Array2<f32> {
        &self.embeddings
    }

    /// Returns the function that converts logits to probabilities.
    pub fn scores(&self) -> Scores {
        self.similarity.scores
    }

    /// Returns the labels' logits for an image's embedding.
    pub fn logits(&self, embedding: ArrayView1<'_, f32>) -> Array1<f32> {
        let image: Vec<f64> = unit(embedding).collect();
        let Similarity { scale, bias, .. } = self.similarity;
        self.embeddings.map_axis(Axis(1), |label| {
            let similarity: f64 = label.iter().zip(&image).map(|(&a, b)| f64::from(a) * b).sum();
            (scale * similarity + bias) as f32
        })
    }
}

/// Scales a vector to length 1. A zero vector stays zero.
fn unit(embedding: ArrayView1<'_, f32>) -> impl Iterator<Item = f64> {
    let norm = clamped_norm(embedding.iter().map(|&value| f64::from(value)));
    embedding.into_iter().map(move |&value| f64::from(value) / norm)
}

impl ZeroShot {
    /// Returns the labels, in the order of the logits.
    pub fn labels(&self) -> &Labels {
        self.classifier.labels()
    }

    /// Returns the embeddings that images are compared with, as `[labels, D]`, each of unit length.
    pub fn embeddings(&self) -> &Array2<f32> {
        self.classifier.embeddings()
    }

    /// Returns the function that converts logits to probabilities.
    ///
    /// CLIP uses a softmax over the labels. SigLIP gives each label an independent probability.
    pub fn scores(&self) -> Scores {
        self.classifier.scores()
    }

    /// Returns the texts that were truncated to the context length of the text tower.
    pub fn truncated(&self) -> &[String] {
        &self.truncated
    }

    /// Classifies images. The outputs have the labels' logits and probabilities, and the images' embeddings.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Session::run`].
    pub fn classify<I>(&self, images: I) -> Result<Outputs>
    where
        I: IntoIterator<Item: AsRef<RgbImage>>,
    {
        Ok(self.apply(self.session.run(images)?))
    }

    /// Adds the labels' logits to outputs of this session, such as those of [`Session::run_with`].
    pub fn apply(&self, outputs: Outputs) -> Outputs {
        let mut logits = Array2::zeros((outputs.len(), self.labels().len()));
        for (mut row, embedding) in logits.rows_mut().into_iter().zip(outputs.embeddings().rows()) {
            row.assign(&self.logits(embedding));
        }
        Outputs {
            labels: self.labels().clone(),
            scores: self.scores(),
            logits: Some(logits),
            ..outputs
        }
    }

    /// Returns the labels' logits for an image's [embedding](crate::ImageOutputs::embedding).
    ///
    /// A logit is the cosine similarity to the label, scaled and shifted by the model's parameters.
    pub fn logits(&self, embedding: ArrayView1<'_, f32>) -> Array1<f32> {
        self.classifier.logits(embedding)
    }

    /// Returns the `k` most likely labels for an image's embedding, best first.
    pub fn top(&self, embedding: ArrayView1<'_, f32>, k: usize) -> Vec<Prediction> {
        self.scores().top(self.logits(embedding).view(), k, self.labels())
    }
}
