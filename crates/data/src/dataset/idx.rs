//! idx files, as MNIST and Fashion-MNIST have them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use hipvit_files::regular_file;

use super::{Dataset, InMemory, Split, Splits, name_of, numbered_classes};
use crate::error::{Error, Result};

/// Maximum length of an idx file's content. Fashion-MNIST has 47 MB, EMNIST 548 MB.
const LONGEST: u64 = 4 << 30;

/// An array of bytes.
struct Array {
    shape: Vec<usize>,
    data: Vec<u8>,
}

/// Reads an idx file of bytes with `dimensions` dimensions, compressed with gzip or not.
fn read(path: &Path, dimensions: usize) -> Result<Array> {
    let io = |source| Error::io(path, source);
    let refuse = |reason: String| Error::dataset(path, reason);
    let mut bytes = regular_file::read_within(path, LONGEST).map_err(io)?;
    if bytes.starts_with(&[0x1F, 0x8B]) {
        let mut content = Vec::new();
        let mut decoder = GzDecoder::new(&bytes[..]).take(LONGEST + 1);
        decoder.read_to_end(&mut content).map_err(io)?;
        bytes = content;
    }
    let header = 4 + 4 * dimensions;
    if bytes.len() < header || bytes[..4] != [0, 0, 8, dimensions as u8] {
        return Err(refuse(format!(
            "is not an idx file of bytes with {dimensions} dimensions"
        )));
    }
    let sizes = bytes[4..header].as_chunks::<4>().0;
    let shape: Vec<usize> = sizes
        .iter()
        .map(|&size| u32::from_be_bytes(size) as usize)
        .collect();
    let expected = shape
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size));
    let data = bytes.split_off(header);
    if expected != Some(data.len()) {
        return Err(refuse(format!(
            "has {} bytes of data for shape {shape:?}",
            data.len()
        )));
    }
    Ok(Array { shape, data })
}

/// Opens a file of images and a file of labels, each compressed with gzip or not.
///
/// The classes are named by their numbers. `classes` replaces the names.
///
/// # Errors
///
/// Returns [`Error::Dataset`] if a file is damaged or the numbers of images and labels differ.
pub fn open_idx(
    images: impl AsRef<Path>,
    labels: impl AsRef<Path>,
    classes: Option<&[String]>,
) -> Result<InMemory> {
    let (path, labels_path) = (images.as_ref(), labels.as_ref());
    let (images, labels) = (read(path, 3)?, read(labels_path, 1)?);
    let [count, height, width] = [0, 1, 2].map(|axis| images.shape[axis]);
    if count != labels.data.len() {
        let reason = format!(
            "has {} labels for the {count} images of {}",
            labels.data.len(),
            path.display()
        );
        return Err(Error::dataset(labels_path, reason));
    }
    if images.data.is_empty() {
        return Err(Error::dataset(path, "contains no images"));
    }
    let labels: Vec<usize> = labels.data.iter().map(|&label| label.into()).collect();
    let most = labels.iter().max().map_or(0, |label| label + 1);
    let classes = numbered_classes(labels_path, most, classes)?;
    InMemory::new(
        path.display().to_string(),
        [height, width],
        images.data,
        labels,
        classes,
    )
}

/// Opens the idx files among `files`, if there are any.
pub(super) fn open_splits(folder: &Path, files: &[PathBuf]) -> Result<Option<Splits>> {
    let pair = |wanted: Split| -> Result<Option<[&PathBuf; 2]>> {
        let Some(images) = files.iter().find(|file| is_part(file, "images", wanted)) else {
            return Ok(None);
        };
        let labels = files.iter().find(|file| is_part(file, "labels", wanted));
        let labels = labels.ok_or_else(|| {
            let reason = "has no file of labels beside it, named with `labels-idx1-ubyte`";
            Error::dataset(images, reason)
        })?;
        Ok(Some([images, labels]))
    };
    let (train, validation) = (pair(Split::Train)?, pair(Split::Validation)?);
    let Some([images, labels]) = train else {
        return match validation {
            Some(_) => Err(Error::dataset(folder, "has no train-images-idx3-ubyte")),
            None => Ok(None),
        };
    };
    let train = open_idx(images, labels, None)?;
    let validation = match validation {
        Some([images, labels]) => Some(open_idx(images, labels, Some(train.classes()))?),
        None => None,
    };
    Ok(Some(Splits {
        train: Arc::new(train),
        validation: validation.map(|set| Arc::new(set) as _),
    }))
}

/// Returns true for a file such as `train-images-idx3-ubyte.gz`.
fn is_part(path: &Path, content: &str, split: Split) -> bool {
    let name = name_of(path);
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    // Some distributions write `train-images.idx3-ubyte`.
    let name = name.replace('.', "-");
    name.contains(&format!("{content}-idx"))
        && name.ends_with("-ubyte")
        && Split::of_name(&name) == Some(split)
}
