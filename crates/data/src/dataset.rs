//! Labelled image datasets, and detection of their layout.

mod folder;
mod idx;
mod memory;
mod pairs;
#[cfg(feature = "parquet")]
mod parquet;
mod tar;
#[cfg(test)]
mod tests;
mod webdataset;

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hipvit_image::{DecodeOptions, RgbImage};

pub use folder::ImageFolder;
pub use idx::open_idx;
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
        let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
        words.find_map(|word| match word.to_ascii_lowercase().as_str() {
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

/// Opens a dataset, and finds its layout:
///
/// | content of `path` | layout |
/// | --- | --- |
/// | directories `train` and `val`, each with one directory per class | ImageNet |
/// | one directory of images per class | torchvision's `ImageFolder` |
/// | `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, also `.gz`, also in `raw` | MNIST, Fashion-MNIST |
/// | `*.tar`, also one file | WebDataset |
/// | `*.parquet`, also one file, also in `data` | Hugging Face, with the cargo feature `parquet` |
/// | a `.csv`, `.tsv` or `.jsonl` file, or `train.csv`, `val.csv`, `metadata.jsonl` and similar names in a directory | [pairs](Pairs) of images and captions |
///
/// WebDataset shards with a `.txt` file per image, and Parquet files with a column of captions, have pairs too.
///
/// The names of shards tell training and validation apart, by the words `train`, and `val`, `validation` or `test`.
/// If there are both `val` and `test`, `val` is used.
///
/// # Errors
///
/// Returns [`Error::Dataset`] if the layout is none of these, a class has no images, or the splits' classes differ. The
/// error names the file or directory.
pub fn open(path: impl AsRef<Path>) -> Result<Splits> {
    let path = path.as_ref();
    let metadata = fs::metadata(path).map_err(|source| Error::io(path, source))?;
    if metadata.is_file() && pairs::is_list(path) {
        return pairs::open_splits(path, &[path.to_owned()]);
    }
    if metadata.is_file() {
        return open_shards(path, vec![path.to_owned()]);
    }
    for folder in [path.to_owned(), path.join("raw"), path.join("data")] {
        let files = files_in(&folder)?;
        if let Some(splits) = idx::open_splits(&folder, &files)? {
            return Ok(splits);
        }
        let of_kind = |is: fn(&Path) -> bool| -> Vec<PathBuf> {
            let found = files.iter().filter(|file| is(file));
            found.cloned().collect()
        };
        let shards = of_kind(is_shard);
        if !shards.is_empty() {
            return open_shards(&folder, shards);
        }
        let lists = of_kind(pairs::is_list_of_folder);
        if !lists.is_empty() {
            return pairs::open_splits(&folder, &lists);
        }
    }
    folder::open_splits(path)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension()
        .is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

fn is_shard(path: &Path) -> bool {
    has_extension(path, "tar") || has_extension(path, "parquet")
}

/// Returns the files in a directory, sorted by name. A missing directory has none.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let io = |source| Error::io(folder, source);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.is_file() && !name_of(&path).starts_with('.') {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Opens the shards of each split. Shards whose name denotes no split are for training.
fn open_shards(path: &Path, shards: Vec<PathBuf>) -> Result<Splits> {
    let word = |file: &PathBuf, word: &str| {
        let name = name_of(file).to_lowercase();
        name.split(|c: char| !c.is_ascii_alphanumeric())
            .any(|found| found == word)
    };
    let (mut train, mut validation) = (Vec::new(), Vec::new());
    for shard in shards {
        match Split::of_name(&name_of(&shard)) {
            Some(Split::Validation) => validation.push(shard),
            _ => train.push(shard),
        }
    }
    // A test set is used for validation only if there is no other.
    if validation.iter().any(|shard| !word(shard, "test")) {
        validation.retain(|shard| !word(shard, "test"));
    }
    if train.is_empty() {
        let reason =
            "there are only shards for validation. Add shards for training, named with the word `train`";
        return Err(Error::dataset(path, reason));
    }
    let train = open_shards_of(&train, None)?;
    let validation = if validation.is_empty() {
        None
    } else {
        let classes = (!train.has_captions()).then(|| train.classes());
        let validation = open_shards_of(&validation, classes)?;
        if validation.has_captions() != train.has_captions() {
            let reason = "has captions in some shards, and classes in others. Keep them apart";
            return Err(Error::dataset(path, reason));
        }
        Some(validation)
    };
    Ok(Splits { train, validation })
}

/// Opens shards of one format. `classes` are the classes of the training set, for another split.
fn open_shards_of(shards: &[PathBuf], classes: Option<&[String]>) -> Result<Arc<dyn Dataset>> {
    let tar = has_extension(&shards[0], "tar");
    if let Some(other) = shards.iter().find(|shard| has_extension(shard, "tar") != tar) {
        let reason = format!(
            "is not of the format of {}: keep tar and Parquet files apart",
            shards[0].display()
        );
        return Err(Error::dataset(other, reason));
    }
    if tar {
        return Ok(Arc::new(WebDataset::open(shards, classes)?));
    }
    if !has_extension(&shards[0], "parquet") {
        let reason = "is neither a directory nor a tar, Parquet, CSV, TSV or JSON Lines file. Name the directory that contains the images";
        return Err(Error::dataset(&shards[0], reason));
    }
    open_parquet(shards, classes)
}

#[cfg(feature = "parquet")]
fn open_parquet(shards: &[PathBuf], classes: Option<&[String]>) -> Result<Arc<dyn Dataset>> {
    Ok(Arc::new(Parquet::open(shards, classes)?))
}

#[cfg(not(feature = "parquet"))]
fn open_parquet(shards: &[PathBuf], _: Option<&[String]>) -> Result<Arc<dyn Dataset>> {
    let reason = "this build was made without the feature `parquet`. Build with it, or convert the dataset to directories";
    Err(Error::dataset(&shards[0], reason))
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
