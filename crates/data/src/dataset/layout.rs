//! Opens a dataset by the layout that it has.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::lists::{self, Columns};
#[cfg(feature = "parquet")]
use super::parquet::Parquet;
use super::webdataset::WebDataset;
use super::{Dataset, Split, Splits, folder, has_extension, idx, name_of, without_tests};
use crate::error::{Error, Result};

/// Opens a dataset, and finds its layout:
///
/// | content of `path` | layout |
/// | --- | --- |
/// | directories `train` and `val`, each with one directory per class | ImageNet |
/// | one directory of images per class | torchvision's `ImageFolder` |
/// | `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, also `.gz`, also in `raw` | MNIST, Fashion-MNIST |
/// | `*.tar`, also one file | WebDataset |
/// | `*.parquet`, also one file, also in `data` | Hugging Face, with the cargo feature `parquet` |
/// | a `.csv`, `.tsv` or `.jsonl` file, or `train.csv`, `val.csv`, `metadata.jsonl` and similar names in a directory | [pairs](super::Pairs) of images and captions |
///
/// | directories `train` and `validation`, each with `metadata.jsonl` or `.csv` and its images | pairs, as in `ImageFolder` of Hugging Face's datasets |
///
/// Lists of these forms may have maps and objects in place of captions: see [`Annotated`](super::Annotated).
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
    if metadata.is_file() && lists::is_list(path) {
        return lists::open_splits(path, &[path.to_owned()]);
    }
    if metadata.is_file() {
        return open_shards(path, vec![path.to_owned()]);
    }
    for directory in [path.to_owned(), path.join("raw"), path.join("data")] {
        let files = files_in(&directory)?;
        if let Some(splits) = idx::open_splits(&directory, &files)? {
            return Ok(splits);
        }
        let of_kind = |is: fn(&Path) -> bool| -> Vec<PathBuf> {
            let found = files.iter().filter(|file| is(file));
            found.cloned().collect()
        };
        let shards = of_kind(is_shard);
        if !shards.is_empty() {
            return open_shards(&directory, shards);
        }
        let lists = of_kind(lists::is_list_of_folder);
        // Beside directories of classes, a table may be about something else.
        let (with_pairs, others): (Vec<PathBuf>, Vec<PathBuf>) =
            lists.into_iter().partition(|list| Columns::of(list).is_some());
        let lists =
            if with_pairs.is_empty() && !others.is_empty() && folder::folders_in(&directory)?.is_empty() {
                others
            } else {
                with_pairs
            };
        if !lists.is_empty() {
            return lists::open_splits(&directory, &lists);
        }
    }
    match open_lists_of_folders(path)? {
        Some(splits) => Ok(splits),
        None => folder::open_splits(path),
    }
}

/// Opens the lists in the directories of the splits, as `ImageFolder` of Hugging Face's datasets does. `None` if training has none.
fn open_lists_of_folders(path: &Path) -> Result<Option<Splits>> {
    let list = |name: &str| -> Result<Option<Arc<dyn Dataset>>> {
        let mut lists = files_in(&path.join(name))?;
        lists.retain(|list| lists::is_list_of_folder(list) && Columns::of(list).is_some());
        match lists.as_slice() {
            [] => Ok(None),
            [list] => Ok(Some(lists::open_list(list)?)),
            [first, second, ..] => {
                let [first, second] = [first, second].map(|list| name_of(list));
                let reason = format!("has several lists of images: {first} and {second}. Keep one of them");
                Err(Error::dataset(path.join(name), reason))
            }
        }
    };
    let Some(train) = list("train")? else {
        return Ok(None);
    };
    let mut validation = None;
    for name in folder::VALIDATION {
        if validation.is_none() {
            validation = list(name)?;
        }
    }
    Ok(Some(Splits { train, validation }))
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

/// Opens the shards of each split. Shards whose name denotes no split are for training.
fn open_shards(path: &Path, shards: Vec<PathBuf>) -> Result<Splits> {
    let (mut train, mut validation) = (Vec::new(), Vec::new());
    for shard in shards {
        match Split::of_name(&name_of(&shard)) {
            Some(Split::Validation) => validation.push(shard),
            _ => train.push(shard),
        }
    }
    without_tests(&mut validation);
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
