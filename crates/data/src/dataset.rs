//! Labelled image datasets.

mod annotated;
mod annotations;
mod folder;
mod idx;
mod layout;
mod list;
mod lists;
mod memory;
mod pairs;
#[cfg(feature = "parquet")]
mod parquet;
mod tar;
#[cfg(test)]
mod tests;
mod webdataset;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use hipvit_files::regular_file;
use hipvit_image::{DecodeOptions, RgbImage};

pub use annotated::Annotated;
pub use annotations::{Annotations, Objects};
pub use folder::ImageFolder;
pub use idx::open_idx;
pub use layout::open;
pub use memory::InMemory;
pub use pairs::Pairs;
#[cfg(feature = "parquet")]
pub use parquet::Parquet;
pub use webdataset::WebDataset;

use crate::error::{Error, Result};

/// Content of an image in a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// An image file.
    Encoded(Vec<u8>),
    /// Pixels.
    Decoded(RgbImage),
}

impl Content {
    fn of_file(path: &Path) -> Result<Self> {
        let bytes = regular_file::read(path).map_err(|source| Error::io(path, source))?;
        Ok(Self::Encoded(bytes))
    }
}

/// A set of images with their classes. Several threads may read it at once.
pub trait Dataset: Debug + Send + Sync {
    /// Returns the number of images.
    fn len(&self) -> usize;

    /// Returns true if there are no images.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the names of the classes. A label is an index into them.
    fn classes(&self) -> &[String];

    /// Returns true if the classes are captions, such as `a photo of a dog`. Then the classes of a training set and of its validation set
    /// differ.
    fn has_captions(&self) -> bool {
        false
    }

    /// Returns the maps and objects of image `index`. `None` if the images have classes or captions.
    fn annotations(&self, _index: usize) -> Option<&Annotations> {
        None
    }

    /// Returns the label of image `index`.
    fn label(&self, index: usize) -> usize;

    /// Returns the name of image `index` in error messages.
    fn name(&self, index: usize) -> String;

    /// Reads image `index`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file if it cannot be read.
    fn read(&self, index: usize) -> Result<Content>;

    /// Reads and decodes image `index`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::read`] and of [`hipvit_image::decode()`].
    fn decode(&self, index: usize, options: DecodeOptions) -> Result<RgbImage> {
        Ok(match self.read(index)? {
            Content::Decoded(image) => image,
            Content::Encoded(bytes) => hipvit_image::decode(&self.name(index), &bytes, options)?,
        })
    }
}

/// A part of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// Images for training.
    Train,
    /// Images for validation.
    Validation,
}

impl Split {
    /// Returns the split that a file's or directory's name denotes, by words that are separated by punctuation.
    fn of_name(name: &str) -> Option<Self> {
        words(name).find_map(|word| match word.to_ascii_lowercase().as_str() {
            "train" | "training" => Some(Self::Train),
            "val" | "valid" | "validation" | "test" | "testing" | "t10k" => Some(Self::Validation),
            _ => None,
        })
    }
}

/// Images for training and, if the dataset has them, for validation. Both have the same classes, unless these are captions.
#[derive(Clone, Debug)]
pub struct Splits {
    /// Images for training.
    pub train: Arc<dyn Dataset>,
    /// Images for validation.
    pub validation: Option<Arc<dyn Dataset>>,
}

/// Returns the words of a name, which punctuation separates.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
}

/// Removes the test sets from files for validation, unless there are no others.
fn without_tests<P: AsRef<Path>>(files: &mut Vec<P>) {
    let is_test = |file: &P| {
        let name = name_of(file.as_ref());
        words(&name).any(|word| word.eq_ignore_ascii_case("test"))
    };
    if files.iter().any(|file| !is_test(file)) {
        files.retain(|file| !is_test(file));
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension()
        .is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Makes captions classes. Returns the different ones, sorted, and the class of each caption.
fn caption_classes(captions: &[String]) -> (Vec<String>, Vec<usize>) {
    let mut classes = captions.to_vec();
    classes.sort_unstable();
    classes.dedup();
    let class = |caption| classes.partition_point(|class| class < caption);
    let labels = captions.iter().map(class).collect();
    (classes, labels)
}

/// Returns names for classes that only have numbers: those of the training set, or the numbers.
fn numbered_classes(path: &Path, count: usize, known: Option<&[String]>) -> Result<Vec<String>> {
    match known {
        Some(known) if count > known.len() => {
            let reason = format!(
                "has class {}, but training has {} classes",
                count - 1,
                known.len()
            );
            Err(Error::dataset(path, reason))
        }
        Some(known) => Ok(known.to_vec()),
        None => Ok((0..count).map(|class| class.to_string()).collect()),
    }
}
