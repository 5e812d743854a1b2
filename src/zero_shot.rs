//! Zero-shot classification: an image belongs to the label whose text's embedding is nearest to its own, of a model that was
//! trained on images and their captions.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

use crate::error::{Error, Result};
use crate::image::RgbImage;
use crate::labels::Labels;
use crate::model::TextTower;
use crate::outputs::{Outputs, Prediction, Scores, clamped_norm};
use crate::session::Session;

/// Where a template has the label.
pub const PLACE: &str = "{}";

/// The options of [`Session::zero_shot_with`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ZeroShotOptions {
    templates: Vec<String>,
}

impl ZeroShotOptions {
    /// The defaults: a label is the text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text with `{}` where the label goes, such as `a photo of a {}.`; of several, a label's embedding is the mean of
    /// the texts' embeddings, each of unit length.
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

/// Labels whose texts are embedded, for classifying images without a trained classifier. Made by [`Session::zero_shot`]; cheap
/// to use again and again.
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
    /// Embeds the texts of `labels`, to classify images by them. A label's text is the label, such as `a photo of a cat`;
    /// [`zero_shot_with`](Self::zero_shot_with) takes templates.
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
    /// Errors of [`embed_texts`](Self::embed_texts); [`Error::Argument`] without a label, or if one is blank.
    pub fn zero_shot<T: AsRef<str>>(&self, labels: impl IntoIterator<Item = T>) -> Result<ZeroShot> {
        self.zero_shot_with(labels, &ZeroShotOptions::new())
    }

    /// Embeds the texts of `labels` as [`zero_shot`](Self::zero_shot) does, with templates.
    ///
    /// # Errors
    ///
    /// Errors of [`zero_shot`](Self::zero_shot); [`Error::Argument`] for a template without `{}`.
    pub fn zero_shot_with<T: AsRef<str>>(
        &self,
        labels: impl IntoIterator<Item = T>,
        options: &ZeroShotOptions,
    ) -> Result<ZeroShot> {
        let tower = self.text_tower()?;
        let labels = labels.into_iter().map(|label| label.as_ref().to_owned());
        let prompts = Prompts::new(labels.collect(), &options.templates)?;
        let embedded = self.embed_texts(prompts.texts())?;
        let width = embedded.embeddings.ncols();
        let of_images = self.no_outputs()?.embeddings().ncols();
        if width != of_images {
            let reason = format!(
                "have embeddings of {width} channels, images of {of_images}: they cannot be compared"
            );
            return Err(Error::argument("texts", reason));
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

/// Labels, and the texts that are embedded for them: each template with the label in its place.
#[derive(Clone, Debug)]
pub struct Prompts {
    labels: Vec<String>,
    /// All texts of the first label, then all texts of the second.
    texts: Vec<String>,
}

impl Prompts {
    /// Checks the labels and fills the templates. Without a template the labels are the texts.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] without a label, for a blank label, or for a template without `{}`.
    pub fn new(labels: Vec<String>, templates: &[String]) -> Result<Self> {
        if labels.is_empty() {
            return Err(Error::argument("labels", "there is none to classify images by"));
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

    /// The labels, without templates.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The texts to embed.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// How a dual encoder compares an image with a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Similarity {
    /// Factor of the cosine similarity.
    pub(crate) scale: f64,
    /// Added to the scaled similarity.
    pub(crate) bias: f64,
    /// How logits become probabilities.
    pub(crate) scores: Scores,
}

impl TextTower {
    /// How the model compares an image with a text.
    pub fn similarity(&self) -> Similarity {
        let [scale, bias] = self.scale_and_bias();
        Similarity {
            scale,
            bias,
            scores: self.scores(),
        }
    }
}

/// Labels with their embeddings, which images are compared with.
#[derive(Clone, Debug)]
pub struct Classifier {
    labels: Labels,
    /// `[labels, D]`, each of unit length.
    embeddings: Array2<f32>,
    similarity: Similarity,
}

impl Classifier {
    /// Averages the embeddings of each label's texts, `[texts, D]`.
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
            // The sum of one text has length 1 already.
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

    /// The labels, in the order of the logits.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// `[labels, D]`, each of unit length.
    pub fn embeddings(&self) -> &Array2<f32> {
        &self.embeddings
    }

    /// How logits become probabilities.
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

/// The vector of length 1 in this direction. Zeros stay zeros.
fn unit(embedding: ArrayView1<'_, f32>) -> impl Iterator<Item = f64> {
    let norm = clamped_norm(embedding.iter().map(|&value| f64::from(value)));
    embedding.into_iter().map(move |&value| f64::from(value) / norm)
}

impl ZeroShot {
    /// The labels, in the order of the logits.
    pub fn labels(&self) -> &Labels {
        self.classifier.labels()
    }

    /// `[labels, D]`: what images are compared with, each of length 1.
    pub fn embeddings(&self) -> &Array2<f32> {
        self.classifier.embeddings()
    }

    /// How logits become probabilities: CLIP's labels share 1, each of SigLIP's has a probability of its own.
    pub fn scores(&self) -> Scores {
        self.classifier.scores()
    }

    /// The texts that were longer than the text tower's context, whose ends were left out as the libraries do.
    pub fn truncated(&self) -> &[String] {
        &self.truncated
    }

    /// Classifies images. The outputs have the labels' logits and probabilities, beside the images' embeddings.
    ///
    /// # Errors
    ///
    /// As [`Session::run`].
    pub fn classify<I>(&self, images: I) -> Result<Outputs>
    where
        I: IntoIterator<Item: AsRef<RgbImage>>,
    {
        Ok(self.apply(self.session.run(images)?))
    }

    /// Adds the labels' logits to outputs of the same session, as those of [`Session::run_with`].
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

    /// The labels' logits for an image's [embedding](crate::ImageOutputs::embedding): its cosine similarity to each label, scaled
    /// and shifted as the model was trained.
    pub fn logits(&self, embedding: ArrayView1<'_, f32>) -> Array1<f32> {
        self.classifier.logits(embedding)
    }

    /// The `k` most likely labels for an image's embedding, best first.
    pub fn top(&self, embedding: ArrayView1<'_, f32>, k: usize) -> Vec<Prediction> {
        self.scores().top(self.logits(embedding).view(), k, self.labels())
    }
}
