//! Parquet files with a column of images and a column of labels, as the Hugging Face hub stores datasets.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hipvit_files::{positioned, regular_file};
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use serde_json::Value;

use super::pairs::{CAPTION_COLUMNS, checked_caption};
use super::{Content, Dataset, caption_classes, numbered_classes};
use crate::error::{Error, Result};

/// Images in Parquet files: a column `image` with the field `bytes`, and a column of numbers `label`, or without it a column of captions
/// `caption`, `text` or `title`.
///
/// Other names of the columns are found by the features that the files describe, or by their types. Compression may be
/// Snappy or none. Opening reads the labels, but no images. Reading an image decompresses the page that contains it.
#[derive(Debug)]
pub struct Parquet {
    shards: Vec<Shard>,
    /// First image of each row group, with its place. Sorted.
    groups: Vec<Group>,
    labels: Vec<usize>,
    classes: Vec<String>,
    /// Captions of the images, until they are sorted.
    captions: Vec<String>,
    has_captions: bool,
}

struct Shard {
    path: PathBuf,
    file: SerializedFileReader<Positioned>,
    /// Column of the images' bytes.
    image: usize,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
struct Group {
    first: usize,
    shard: usize,
    group: usize,
}

/// A file that several threads read at different offsets. Clones of a [`File`] would share one offset.
#[derive(Clone)]
struct Positioned(Arc<File>);

/// Reads a file from an offset on.
struct Cursor {
    file: Arc<File>,
    offset: u64,
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = positioned::read_at(&self.file, buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Length for Positioned {
    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }
}

impl ChunkReader for Positioned {
    type T = io::BufReader<Cursor>;

    fn get_read(&self, offset: u64) -> Result<Self::T, ParquetError> {
        Ok(io::BufReader::new(Cursor {
            file: Arc::clone(&self.0),
            offset,
        }))
    }

    fn get_bytes(&self, offset: u64, length: usize) -> Result<Bytes, ParquetError> {
        if offset.saturating_add(length as u64) > self.len() {
            return Err(ParquetError::EOF("the file ends early".into()));
        }
        let mut bytes = vec![0; length];
        positioned::read_exact_at(&self.0, &mut bytes, offset)?;
        Ok(bytes.into())
    }
}

/// Columns of a dataset, and the names of its classes if the file has them.
struct Columns {
    image: usize,
    label: usize,
    /// True if the labels are captions.
    has_captions: bool,
    classes: Option<Vec<String>>,
}

impl Parquet {
    /// Opens the files, and reads the labels.
    ///
    /// `classes` are the classes of the training set, if this is another split. Without them and without names in the
    /// files, classes are named by their numbers.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Dataset`] if a file is damaged, has no column of images or labels, or has a label that is not a
    /// class.
    pub fn open(shards: &[PathBuf], classes: Option<&[String]>) -> Result<Self> {
        let mut set = Self {
            shards: Vec::new(),
            groups: Vec::new(),
            labels: Vec::new(),
            classes: Vec::new(),
            captions: Vec::new(),
            has_captions: false,
        };
        let mut named = classes.map(<[String]>::to_vec);
        for path in shards {
            let columns = set.add(path)?;
            named = named.or(columns.classes);
        }
        let path = &shards[0];
        if set.has_captions {
            return set.with_captions(path);
        }
        let count = set.labels.iter().max().map_or(0, |most| most + 1);
        if count == 0 {
            return Err(Error::dataset(path, "contains no images"));
        }
        set.classes = numbered_classes(path, count, named.as_deref())?;
        Ok(set)
    }

    /// Makes the captions the classes.
    fn with_captions(mut self, path: &Path) -> Result<Self> {
        let captions = std::mem::take(&mut self.captions);
        if captions.is_empty() || captions.len() != self.labels.len() {
            let reason = "contains no images with captions, or captions in some files only";
            return Err(Error::dataset(path, reason));
        }
        (self.classes, self.labels) = caption_classes(&captions);
        Ok(self)
    }

    fn add(&mut self, path: &Path) -> Result<Columns> {
        let damaged = |error: ParquetError| Error::dataset(path, error);
        let file = regular_file::open(path).map_err(|source| Error::io(path, source))?;
        let file = SerializedFileReader::new(Positioned(Arc::new(file))).map_err(damaged)?;
        let columns = find_columns(file.metadata()).map_err(|reason| Error::dataset(path, reason))?;
        self.has_captions |= columns.has_captions;
        let start = self.labels.len();
        for group in 0..file.num_row_groups() {
            let first = self.labels.len();
            let row_of_file = first - start;
            let reader = file.get_row_group(group).map_err(damaged)?;
            let rows = reader.metadata().num_rows() as usize;
            let column = reader.get_column_reader(columns.label).map_err(damaged)?;
            let labels = if columns.has_captions {
                let captions = read_captions(column, rows).map_err(damaged)?;
                for (row, caption) in captions.iter().enumerate() {
                    let checked = checked_caption(caption).map_err(|reason| {
                        Error::dataset(path, format!("image {}: {reason}", row_of_file + row))
                    })?;
                    self.captions.push(checked.to_owned());
                }
                vec![0; captions.len()]
            } else {
                read_labels(column, rows).map_err(damaged)?
            };
            let labels = labels.into_iter().enumerate().map(|(row, label)| {
                usize::try_from(label).map_err(|_| {
                    let reason = format!("image {}: {label} is not a class", row_of_file + row);
                    Error::dataset(path, reason)
                })
            });
            let labels: Vec<usize> = labels.collect::<Result<_>>()?;
            if labels.len() != rows {
                let reason = format!("has {} labels for {rows} images, so some have none", labels.len());
                return Err(Error::dataset(path, reason));
            }
            self.labels.extend(labels);
            self.groups.push(Group {
                first,
                shard: self.shards.len(),
                group,
            });
        }
        self.shards.push(Shard {
            path: path.to_owned(),
            file,
            image: columns.image,
        });
        Ok(columns)
    }

    /// Returns the row group of an image.
    fn group(&self, index: usize) -> Group {
        let after = self.groups.partition_point(|group| group.first <= index);
        self.groups[after.saturating_sub(1)]
    }
}

/// Finds the columns by the features of Hugging Face's `datasets`, else by name and type.
fn find_columns(metadata: &ParquetMetaData) -> Result<Columns, String> {
    let schema = metadata.file_metadata().schema_descr();
    let names: Vec<String> = schema
        .columns()
        .iter()
        .map(|column| column.path().string())
        .collect();
    let features = features(metadata);
    let feature = |kind: &str| {
        let found = features.as_ref()?.as_object()?.iter();
        let mut found = found.filter(|(_, feature)| feature["_type"] == kind);
        found
            .next()
            .map(|(name, feature)| (name.clone(), feature.clone()))
    };
    let image = feature("Image").map_or_else(|| "image".to_owned(), |(name, _)| name);
    let image = [format!("{image}.bytes"), image];
    let image = names
        .iter()
        .position(|name| image.contains(name))
        .or_else(|| names.iter().position(|name| name.ends_with(".bytes")));
    let Some(image) = image else {
        return Err(format!(
            "has no column of images (`image.bytes`); its columns are {}",
            names.join(", ")
        ));
    };
    let class = feature("ClassLabel");
    let classes = class.as_ref().and_then(|(_, feature)| {
        let names = feature["names"].as_array()?.iter();
        names.map(|name| name.as_str().map(str::to_owned)).collect()
    });
    let candidates = class.map(|(name, _)| name).into_iter();
    let mut candidates = candidates.chain(["label", "labels", "fine_label"].map(str::to_owned));
    let label = candidates.find_map(|wanted| names.iter().position(|name| *name == wanted));
    let mut captions = CAPTION_COLUMNS.iter();
    let captions = captions.find_map(|wanted| names.iter().position(|name| name == wanted));
    let has_captions = label.is_none() && captions.is_some();
    let Some(label) = label.or(captions) else {
        return Err(format!(
            "has no column of labels (`label`) or captions ({}); its columns are {}",
            CAPTION_COLUMNS.join(", "),
            names.join(", ")
        ));
    };
    Ok(Columns {
        image,
        label,
        has_captions,
        classes,
    })
}

/// Returns the features that `datasets` stores as JSON in the file's metadata.
fn features(metadata: &ParquetMetaData) -> Option<Value> {
    let entries = metadata.file_metadata().key_value_metadata()?;
    let entry = entries.iter().find(|entry| entry.key == "huggingface")?;
    let mut value: Value = serde_json::from_str(entry.value.as_deref()?).ok()?;
    Some(value["info"]["features"].take())
}

/// Reads a column of integers.
fn read_labels(column: ColumnReader, rows: usize) -> Result<Vec<i64>, ParquetError> {
    match column {
        ColumnReader::Int64ColumnReader(mut column) => {
            let (mut levels, mut values) = (Vec::new(), Vec::new());
            column.read_records(rows, Some(&mut levels), None, &mut values)?;
            Ok(values)
        }
        ColumnReader::Int32ColumnReader(mut column) => {
            let (mut levels, mut values) = (Vec::new(), Vec::new());
            column.read_records(rows, Some(&mut levels), None, &mut values)?;
            Ok(values.into_iter().map(i64::from).collect())
        }
        _ => Err(ParquetError::General("the labels are not integers".into())),
    }
}

/// Reads a column of texts. Rows without a text are empty.
fn read_captions(column: ColumnReader, rows: usize) -> Result<Vec<String>, ParquetError> {
    let ColumnReader::ByteArrayColumnReader(mut column) = column else {
        return Err(ParquetError::General("the captions are not texts".into()));
    };
    let (mut levels, mut values) = (Vec::new(), Vec::<ByteArray>::new());
    column.read_records(rows, Some(&mut levels), None, &mut values)?;
    let text = |value: &ByteArray| value.as_utf8().map(str::to_owned);
    let texts: Vec<String> = values.iter().map(text).collect::<Result<_, _>>()?;
    if texts.len() == rows {
        return Ok(texts);
    }
    let most = levels.iter().max().copied().unwrap_or_default();
    let mut texts = texts.into_iter();
    let filled = levels.iter().map(|&level| {
        let is_null = level < most || most == 0;
        if is_null { None } else { texts.next() }.unwrap_or_default()
    });
    Ok(filled.collect())
}

/// Reads the bytes in row `row` of a column. Returns `None` if the row is empty.
fn read_bytes(column: ColumnReader, row: usize) -> Result<Option<Bytes>, ParquetError> {
    let ColumnReader::ByteArrayColumnReader(mut column) = column else {
        return Err(ParquetError::General("the images are not bytes".into()));
    };
    column.skip_records(row)?;
    let (mut levels, mut values) = (Vec::new(), Vec::<ByteArray>::new());
    column.read_records(1, Some(&mut levels), None, &mut values)?;
    Ok(values.first().map(|value| Bytes::copy_from_slice(value.data())))
}

impl Dataset for Parquet {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn has_captions(&self) -> bool {
        self.has_captions
    }

    fn label(&self, index: usize) -> usize {
        self.labels[index]
    }

    fn name(&self, index: usize) -> String {
        let path = &self.shards[self.group(index).shard].path;
        let first = self
            .groups
            .iter()
            .find(|group| self.shards[group.shard].path == *path);
        format!(
            "{}#{}",
            path.display(),
            index - first.map_or(0, |group| group.first)
        )
    }

    fn read(&self, index: usize) -> Result<Content> {
        let Group { first, shard, group } = self.group(index);
        let Shard { path, file, image } = &self.shards[shard];
        let read = || {
            read_bytes(
                file.get_row_group(group)?.get_column_reader(*image)?,
                index - first,
            )
        };
        match read().map_err(|error| Error::dataset(path, error))? {
            Some(bytes) => Ok(Content::Encoded(bytes.into())),
            None => Err(Error::dataset(self.name(index), "has no bytes")),
        }
    }
}
