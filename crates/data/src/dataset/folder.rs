//! Directories of images, one directory per class.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hipvit_image::{EXTENSIONS, has_image_extension};
use walkdir::WalkDir;

use super::{Content, Dataset, Splits, name_of};
use crate::error::{Error, Result};

/// Names of the directory of validation, the first of which that exists counts.
pub(super) const VALIDATION: [&str; 4] = ["val", "validation", "valid", "test"];

/// Images in one directory per class, as torchvision's `ImageFolder` reads them.
///
/// Classes are sorted by name. The images of a class are all image files below its directory, sorted by path.
#[derive(Clone, Debug)]
pub struct ImageFolder {
    files: Vec<(PathBuf, usize)>,
    classes: Vec<String>,
}

impl ImageFolder {
    /// Lists the images of all classes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Dataset`] if there are no class directories or a class has no images, and [`Error::Io`] if a
    /// directory cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let folders = folders_in(path)?;
        if folders.is_empty() {
            let reason = "contains no directories of classes and no shards. Expected one directory per class; train and val \
                          with directories of classes; or idx, tar or Parquet files";
            return Err(Error::dataset(path, reason));
        }
        let (mut files, mut classes) = (Vec::new(), Vec::new());
        for folder in folders {
            let images = images_below(&folder)?;
            if images.is_empty() {
                let reason = format!(
                    "this class has no images ({}). Add images, or remove the directory",
                    EXTENSIONS.join(", ")
                );
                return Err(Error::dataset(folder, reason));
            }
            files.extend(images.into_iter().map(|file| (file, classes.len())));
            classes.push(name_of(&folder));
        }
        Ok(Self { files, classes })
    }

    /// Replaces the classes with those of the training set, which must contain them.
    fn with_classes(mut self, path: &Path, classes: &[String]) -> Result<Self> {
        let position = |name: &String| {
            classes.iter().position(|class| class == name).ok_or_else(|| {
                let reason = "this class does not occur in the training set. Add it there, or remove it";
                Error::dataset(path.join(name), reason)
            })
        };
        let labels: Vec<usize> = self.classes.iter().map(position).collect::<Result<_>>()?;
        for (_, label) in &mut self.files {
            *label = labels[*label];
        }
        self.classes = classes.to_vec();
        Ok(self)
    }
}

/// Opens ImageNet's layout, or the class directories in `path`.
pub(super) fn open_splits(path: &Path) -> Result<Splits> {
    let train = path.join("train");
    if !train.is_dir() {
        let train = Arc::new(ImageFolder::open(path)?);
        return Ok(Splits {
            train,
            validation: None,
        });
    }
    let train = ImageFolder::open(train)?;
    let validation = VALIDATION
        .map(|name| path.join(name))
        .into_iter()
        .find(|path| path.is_dir());
    let validation = match validation {
        Some(path) => Some(ImageFolder::open(&path)?.with_classes(&path, &train.classes)?),
        None => None,
    };
    Ok(Splits {
        train: Arc::new(train),
        validation: validation.map(|set| Arc::new(set) as _),
    })
}

/// Returns the directories in a directory, sorted by name. Hidden ones are left out.
pub(super) fn folders_in(path: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::io(path, source);
    let mut folders = Vec::new();
    for entry in fs::read_dir(path).map_err(io)? {
        let folder = entry.map_err(io)?.path();
        if folder.is_dir() && !name_of(&folder).starts_with('.') {
            folders.push(folder);
        }
    }
    folders.sort();
    Ok(folders)
}

fn images_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for entry in WalkDir::new(folder).follow_links(true).sort_by_file_name() {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(folder).to_owned();
            Error::io(path, error.into())
        })?;
        if entry.file_type().is_file() && is_image(entry.path()) {
            images.push(entry.into_path());
        }
    }
    Ok(images)
}

/// Returns true if the name is that of an image. Files of macOS that begin with a dot are none.
fn is_image(path: &Path) -> bool {
    has_image_extension(path) && !name_of(path).starts_with('.')
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> usize {
        self.files[index].1
    }

    fn name(&self, index: usize) -> String {
        self.files[index].0.display().to_string()
    }

    fn read(&self, index: usize) -> Result<Content> {
        Content::of_file(&self.files[index].0)
    }
}
