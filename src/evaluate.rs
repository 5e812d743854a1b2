//! Measures a model's accuracy over labelled images.

mod class_map;

use std::borrow::Cow;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::image::{DecodeOptions, RgbImage};
use crate::labels::Labels;
use crate::pipeline::{Item, ItemError, Pipeline, Source};
use crate::session::Session;

pub use class_map::ClassMap;

/// Labelled images: each has the index of its class.
#[derive(Clone, Debug, Default)]
pub struct LabelledSet {
    sources: Vec<Source>,
    classes: Vec<usize>,
}

impl LabelledSet {
    /// Adds an image of class `class`.
    pub fn push(&mut self, source: Source, class: usize) {
        self.sources.push(source);
        self.classes.push(class);
    }

    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Returns true if the set has no images.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the class that a directory's name denotes, as [`Labels::find`] reads it.
    ///
    /// The name may be the id of a class (such as `n01440764` in ImageNet's standard layout), its label, or its index.
    /// [`ClassMap`] handles other names.
    ///
    /// # Errors
    ///
    /// Returns [`Error::LabelledSet`] if the name denotes no class. The error says which names are valid.
    pub fn class_of(directory: &Path, labels: &Labels) -> Result<usize> {
        labels
            .find_among(&name_of(directory), labels.len().max(2))
            .map_err(|error| Error::LabelledSet {
                path: directory.to_owned(),
                reason: match error {
                    Error::Argument { reason, .. } => reason,
                    other => other.to_string(),
                },
            })
    }

    /// Reads a labelled set from a safetensors file with two tensors.
    ///
    /// - `images`: u8, `[N,H,W]` (grey) or `[N,H,W,3]`
    /// - `labels`: u8 or i64, `[N]`
    ///
    /// # Errors
    ///
    /// Returns [`Error::Weights`] or [`Error::Tensor`] if the file or a tensor is invalid.
    pub fn from_safetensors(file: &Path, bytes: &[u8]) -> Result<Self> {
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| Error::weights(file, e))?;
        let tensor = |name| {
            tensors
                .tensor(name)
                .map_err(|_| Error::tensor(file, name, "is missing"))
        };
        let (images, labels) = (tensor("images")?, tensor("labels")?);
        let (count, height, width, channels) = match (images.dtype(), images.shape()) {
            (Dtype::U8, &[n, h, w]) => (n, h, w, 1),
            (Dtype::U8, &[n, h, w, 3]) => (n, h, w, 3),
            (dtype, shape) => {
                let reason = format!("is {dtype:?} {shape:?}, expected U8 [N, H, W] or [N, H, W, 3]");
                return Err(Error::tensor(file, "images", reason));
            }
        };
        if [count, height, width].contains(&0) {
            let reason = format!("has shape {:?}: there is no pixel", images.shape());
            return Err(Error::tensor(file, "images", reason));
        }
        let classes: Vec<usize> = match (labels.dtype(), labels.shape()) {
            (Dtype::U8, &[n]) if n == count => labels.data().iter().map(|&b| b.into()).collect(),
            (Dtype::I64, &[n]) if n == count => labels
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|&b| {
                    let label = i64::from_le_bytes(b);
                    usize::try_from(label)
                        .map_err(|_| Error::tensor(file, "labels", format!("{label} is not a class")))
                })
                .collect::<Result<_>>()?,
            (dtype, shape) => {
                let reason = format!("is {dtype:?} {shape:?}, expected U8 or I64 [{count}]");
                return Err(Error::tensor(file, "labels", reason));
            }
        };
        let mut set = Self::default();
        for (index, &class) in classes.iter().enumerate() {
            let each = height * width * channels;
            let data = &images.data()[index * each..(index + 1) * each];
            let data = match channels {
                1 => data.iter().flat_map(|&grey| [grey; 3]).collect(),
                _ => data.to_vec(),
            };
            let name = format!("{}#{index}", file.display());
            set.push(Source::Decoded(name, RgbImage { width, height, data }), class);
        }
        Ok(set)
    }
}

/// Returns the last component of a directory's path.
fn name_of(directory: &Path) -> Cow<'_, str> {
    directory.file_name().unwrap_or_default().to_string_lossy()
}

/// Iterates over the images with their classes.
impl IntoIterator for LabelledSet {
    type Item = (Source, usize);
    type IntoIter = std::iter::Zip<std::vec::IntoIter<Source>, std::vec::IntoIter<usize>>;

    fn into_iter(self) -> Self::IntoIter {
        self.sources.into_iter().zip(self.classes)
    }
}

/// Accuracy of a model over a labelled set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Number of images that were classified.
    pub images: usize,
    /// Number of images that could not be read.
    pub failed: usize,
    /// Number of images whose most likely class was correct.
    pub correct: usize,
    /// Number of images whose correct class was among the five most likely.
    pub correct_top5: usize,
    /// Top-1 accuracy: `correct / images`.
    pub accuracy: f64,
    /// Top-5 accuracy: `correct_top5 / images`.
    pub accuracy_top5: f64,
    /// Accuracy of each class that occurred in the set.
    pub classes: Vec<ClassEvaluation>,
}

/// Accuracy of a model over the images of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassEvaluation {
    /// Index of the class.
    pub index: usize,
    /// Label of the class.
    pub label: String,
    /// Id of the class, if classes have ids. The classes of ImageNet have WordNet ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Number of images of the class.
    pub images: usize,
    /// Number of images of the class that were classified correctly.
    pub correct: usize,
    /// Number of images of the class for which it was among the five most likely.
    pub correct_top5: usize,
}

/// Classifies every image of `set` and counts the correct results.
///
/// A model with one logit is treated as binary: the result is class 1 if the probability is above one half.
///
/// Every image's result is passed to `each`, for a progress bar or to report images that failed.
///
/// # Errors
///
/// Returns [`Error::Argument`] if the model has no classification head, or if the set has a class that the model does
/// not have. Other errors stop the evaluation if they do not belong to a single image.
pub fn evaluate(
    session: &Session,
    set: LabelledSet,
    options: impl Into<DecodeOptions>,
    mut each: impl FnMut(&Result<Item, ItemError>),
) -> Result<Evaluation> {
    let mut tally = Tally::new(session, set.classes)?;
    let mut failed = 0;
    for item in Pipeline::new(session).decode_options(options).run(set.sources)? {
        each(&item);
        match item {
            Ok(item) => tally.add(&item),
            Err(error) if error.index().is_some() => failed += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(tally.finish(failed))
}

/// Counts correct results as they arrive. Use it with your own [`Pipeline`]; [`evaluate`] creates one.
#[derive(Clone, Debug)]
pub struct Tally {
    labels: Labels,
    /// Class of each image.
    classes: Vec<usize>,
    /// Three counts per class: images, correct images, and images with the class among the five most likely.
    seen: Vec<[usize; 3]>,
}

impl Tally {
    /// Creates a tally for results of `session`. `classes` has the class of each image, in the order of the images.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the model has no classification head or lacks one of the classes.
    pub fn new(session: &Session, classes: Vec<usize>) -> Result<Self> {
        let labels = session.labels().clone();
        let known = labels.len().max(2);
        if labels.is_empty() {
            return Err(Error::argument("model", "has no classification head"));
        }
        if let Some(class) = classes.iter().find(|&&class| class >= known) {
            return Err(Error::argument(
                "labels",
                format!("class {class} is not one of the model's {known} classes"),
            ));
        }
        Ok(Self {
            labels,
            classes,
            seen: vec![[0; 3]; known],
        })
    }

    /// Counts the result of one image.
    ///
    /// # Panics
    ///
    /// Panics if `classes` has no entry for the [index](Item::index) of the image.
    pub fn add(&mut self, item: &Item) {
        let class = self.classes[item.index()];
        let top = item.top(5);
        let order: Vec<usize> = match &top[..] {
            [only] if self.labels.len() == 1 => vec![usize::from(only.logit > 0.0)],
            _ => top.iter().map(|prediction| prediction.index).collect(),
        };
        let correct = order.first() == Some(&class);
        let counts = [1, usize::from(correct), usize::from(order.contains(&class))];
        for (sum, count) in self.seen[class].iter_mut().zip(counts) {
            *sum += count;
        }
    }

    /// Returns the counts and accuracies. `failed` is the number of images without a result.
    pub fn finish(self, failed: usize) -> Evaluation {
        let Self { labels, seen, .. } = self;
        let [images, correct, correct_top5] =
            [0, 1, 2].map(|which| seen.iter().map(|counts| counts[which]).sum::<usize>());
        let share = |count: usize| count as f64 / images.max(1) as f64;
        let class = |(index, counts): (usize, &[usize; 3])| ClassEvaluation {
            index,
            label: match labels.len() {
                1 => index.to_string(),
                _ => labels.get(index).to_string(),
            },
            id: labels.id(index).map(str::to_owned),
            images: counts[0],
            correct: counts[1],
            correct_top5: counts[2],
        };
        Evaluation {
            images,
            failed,
            correct,
            correct_top5,
            accuracy: share(correct),
            accuracy_top5: share(correct_top5),
            classes: seen
                .iter()
                .enumerate()
                .filter(|(_, counts)| counts[0] > 0)
                .map(class)
                .collect(),
        }
    }
}
