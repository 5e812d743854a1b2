//! Names of a model's classes: the model's own, ImageNet's, or those in a file.

pub(crate) mod file;
mod find;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::nearest;

/// Classes of ImageNet-1k in the order of the logits: WordNet id, tab, names. The list is from timm, see
/// assets/README.md.
const IMAGENET: &str = include_str!("../assets/imagenet/imagenet_1k.tsv");
/// Number of classes of ImageNet-1k.
const IMAGENET_CLASSES: usize = 1000;

/// Labels of a model's classes, by the index of the logit. Cheap to clone.
///
/// Classes may have an id as well as a name. For ImageNet it is the WordNet id, such as `n01440764`.
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
    /// One id per name, or empty.
    ids: Arc<[String]>,
    source: LabelSource,
}

/// Source of the class names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LabelSource {
    /// Given by the program that uses the library.
    #[default]
    Given,
    /// Read from the model's configuration.
    Model,
    /// No source: the model does not name its classes, so they are numbered.
    Numbers,
    /// ImageNet-1k in timm's order, see [`Labels::imagenet_1k`].
    Imagenet1k,
    /// Read from a file, see [`Labels::from_file`].
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

/// Labels are equal if their names and ids are equal. Their source does not count.
impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        (&self.names, &self.ids) == (&other.names, &other.ids)
    }
}

impl Eq for Labels {}

/// Collects the names of the classes, in the order of the logits.
impl<S: Into<String>> FromIterator<S> for Labels {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

impl Labels {
    /// Returns the 1,000 classes of ImageNet-1k (ILSVRC 2012) in the order of their WordNet ids, as in timm and
    /// torchvision.
    ///
    /// A model with 1,000 classes and no labels of its own gets these.
    pub fn imagenet_1k() -> Self {
        let (ids, names) = IMAGENET.lines().filter_map(|line| line.split_once('\t')).unzip();
        Self {
            source: LabelSource::Imagenet1k,
            ..Self::with_ids(names, ids)
        }
    }

    /// Creates labels of classes that each have an id.
    fn with_ids(names: Vec<&str>, ids: Vec<&str>) -> Self {
        let own = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect();
        Self {
            names: own(names),
            ids: own(ids),
            source: LabelSource::default(),
        }
    }

    /// Creates the labels of a model with `count` classes.
    ///
    /// - `known` returns the id, if any, and the label of a class that the model names.
    /// - `unknown` makes the label of a class that the model does not name.
    ///
    /// A model that names no class gets ImageNet's labels if it has 1,000 classes.
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
        labels.with_imagenet_ids()
    }

    /// Adds WordNet ids if the labels are ImageNet's classes.
    ///
    /// Labels are ImageNet's if at least nine in ten are the WordNet id or match the first synonym of ImageNet's label.
    /// Labels that are only ids are replaced by ImageNet's labels.
    fn with_imagenet_ids(self) -> Self {
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

    /// Checks that the number of labels matches a model with `classes` classes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] if the labels are from a file, otherwise [`Error::Argument`]. Both give the two
    /// counts.
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

    /// Returns the source of the names.
    pub fn source(&self) -> &LabelSource {
        &self.source
    }

    /// Returns the label of class `index`, or `"?"` if there is no such class.
    pub fn get(&self, index: usize) -> &str {
        self.names.get(index).map_or("?", String::as_str)
    }

    /// Returns the id of class `index`, if the classes have ids.
    pub fn id(&self, index: usize) -> Option<&str> {
        self.ids.get(index).map(String::as_str)
    }

    /// Returns the index of the class with the label `name`, if there is one.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|label| label == name)
    }

    /// Returns the number of classes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns true if there are no classes.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Iterates over all labels in the order of the logits.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

/// Returns the first name that a label lists, normalised by [`nearest::plain`] for comparison.
fn first_synonym(label: &str) -> String {
    nearest::plain(synonyms(label).next().unwrap_or_default())
}

/// Splits a label at commas into the names that it lists, as in ImageNet.
fn synonyms(label: &str) -> impl Iterator<Item = &str> {
    label.split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
