//! The names of a model's classes: the model's own, ImageNet's, or those of a file.

pub(crate) mod file;
mod find;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::nearest;

/// The names of ImageNet-1k's classes in the order of the logits: WordNet id, tab, names. From timm, see assets/README.md.
const IMAGENET: &str = include_str!("../assets/imagenet/imagenet_1k.tsv");
/// The number of ImageNet-1k's classes.
const IMAGENET_CLASSES: usize = 1000;

/// One label per class, by the index of its logit. Cheap to clone.
///
/// Classes may have an id beside their name: ImageNet's have the WordNet id, such as `n01440764`.
///
/// ```
/// use hipvit::Labels;
///
/// let labels = Labels::imagenet_1k();
/// assert_eq!(labels.get(207), "golden retriever");
/// assert_eq!(labels.id(207), Some("n02099601"));
/// assert_eq!(labels.find("n02099601")?, 207);
/// # Ok::<(), hipvit::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Labels {
    names: Arc<[String]>,
    /// As many as there are names, or none.
    ids: Arc<[String]>,
    source: LabelSource,
}

/// Where the names of classes come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LabelSource {
    /// The program that uses the library.
    #[default]
    Given,
    /// The model's configuration.
    Model,
    /// Nowhere: the classes have numbers, as the model does not name them.
    Numbers,
    /// ImageNet-1k, in timm's order: see [`Labels::imagenet_1k`].
    Imagenet1k,
    /// A file: see [`Labels::from_file`].
    File(Arc<Path>),
}

impl fmt::Display for LabelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("given by the program"),
            Self::Model => f.write_str("the model's own"),
            Self::Numbers => f.write_str("none: the classes are numbered"),
            Self::Imagenet1k => f.write_str("ImageNet-1k's, in timm's order"),
            Self::File(file) => write!(f, "{}", file.display()),
        }
    }
}

/// Labels are equal if their names and ids are, wherever they were read.
impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        (&self.names, &self.ids) == (&other.names, &other.ids)
    }
}

impl Eq for Labels {}

/// The names of the classes, in the order of the logits.
impl<S: Into<String>> FromIterator<S> for Labels {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

impl Labels {
    /// The 1,000 classes of ImageNet-1k (ILSVRC 2012) in the order of their WordNet ids, as timm and torchvision number them. A
    /// model with 1,000 classes that has no labels of its own has these.
    pub fn imagenet_1k() -> Self {
        let (ids, names) = IMAGENET.lines().filter_map(|line| line.split_once('\t')).unzip();
        Self {
            source: LabelSource::Imagenet1k,
            ..Self::with_ids(names, ids)
        }
    }

    /// Classes with an id each.
    fn with_ids(names: Vec<&str>, ids: Vec<&str>) -> Self {
        let own = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect();
        Self {
            names: own(names),
            ids: own(ids),
            source: LabelSource::default(),
        }
    }

    /// The labels of a model of `count` classes, of which it knows some, none or all: `known` returns a label with its id,
    /// if there is one. A model that knows none has ImageNet's, if it has as many classes; otherwise `unknown` makes what
    /// is missing.
    pub(crate) fn of_model<'a>(
        count: usize,
        known: impl Fn(usize) -> Option<(Option<&'a str>, &'a str)>,
        unknown: impl Fn(usize) -> String,
    ) -> Self {
        let known: Vec<_> = (0..count).map(known).collect();
        if count == IMAGENET_CLASSES && known.iter().all(Option::is_none) {
            return Self::imagenet_1k();
        }
        let ids: Option<Arc<[String]>> = known.iter().map(|entry| Some((*entry)?.0?.to_owned())).collect();
        let name = |(index, entry): (usize, &Option<(_, &str)>)| match entry {
            Some((_, name)) => (*name).to_owned(),
            None => unknown(index),
        };
        let labels = Self {
            names: known.iter().enumerate().map(name).collect(),
            ids: ids.unwrap_or_default(),
            source: if known.iter().any(Option::is_some) {
                LabelSource::Model
            } else {
                LabelSource::Numbers
            },
        };
        labels.recognised()
    }

    /// Adds WordNet's ids if these are ImageNet's classes: nine in ten have the name that they have there, of which only
    /// the first synonym is compared, or that id. Names that are nothing but ids are replaced by ImageNet's.
    fn recognised(self) -> Self {
        if self.len() != IMAGENET_CLASSES || !self.ids.is_empty() {
            return self;
        }
        let imagenet = Self::imagenet_1k();
        let alike = |of: &[String], with: fn(&str) -> String| {
            let pairs = self.names.iter().zip(of);
            10 * pairs.filter(|(a, b)| with(a) == with(b)).count() >= 9 * IMAGENET_CLASSES
        };
        if alike(&imagenet.ids, nearest::plain) {
            return imagenet;
        }
        if alike(&imagenet.names, first_synonym) {
            Self {
                ids: imagenet.ids,
                ..self
            }
        } else {
            self
        }
    }

    /// Checks that a model of `classes` can have these.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming the file that they are from, else [`Error::Argument`], with both counts.
    pub fn check(&self, classes: usize) -> Result<()> {
        let count = self.len();
        let reason = match classes {
            _ if count == classes => return Ok(()),
            0 => "the model has no classification head, so it has no use for labels".to_owned(),
            _ => format!("there are {count} labels, but the model has {classes} classes"),
        };
        Err(match &self.source {
            LabelSource::File(file) => Error::config(&**file, reason),
            _ => Error::argument("labels", reason),
        })
    }

    /// Where the names come from.
    pub fn source(&self) -> &LabelSource {
        &self.source
    }

    /// The label of class `index`, or `"?"` beyond the last.
    pub fn get(&self, index: usize) -> &str {
        self.names.get(index).map_or("?", String::as_str)
    }

    /// The id of class `index`, if the classes have ids.
    pub fn id(&self, index: usize) -> Option<&str> {
        self.ids.get(index).map(String::as_str)
    }

    /// The class called `name`, if there is one.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|label| label == name)
    }

    /// The number of classes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether the model has no classes.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All labels in the order of the logits.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

/// The first name that a label lists, as far as spellings are compared.
fn first_synonym(label: &str) -> String {
    nearest::plain(synonyms(label).next().unwrap_or_default())
}

/// The names that a label lists between commas, as ImageNet's do.
fn synonyms(label: &str) -> impl Iterator<Item = &str> {
    label.split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
