//! File formats for arrays with one row per image: NumPy, safetensors and Parquet.

use std::collections::BTreeMap;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
#[cfg(feature = "parquet")]
use std::sync::Arc;

use anyhow::Result;
use hipvit_search::npy;
#[cfg(feature = "parquet")]
use parquet::{
    data_type::{ByteArray, ByteArrayType, FloatType},
    file::{metadata::KeyValue, properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use tempfile::SpooledTempFile;

use super::outcome::Usage;
use super::output::Sink;
use super::record::escape_json;

/// Rows of one array. The number of rows is known only at the end.
struct Rows {
    /// Extents of a row. Known after the first row.
    row: Vec<usize>,
    count: usize,
    /// Values in little-endian order.
    values: SpooledTempFile,
}

impl Rows {
    /// Number of bytes that are kept in memory. Larger arrays go to a temporary file.
    const IN_MEMORY: usize = 64 << 20;

    /// Creates an empty array. Large arrays go to a temporary file in `directory`.
    fn new(directory: &Path) -> Self {
        Self {
            row: Vec::new(),
            count: 0,
            values: SpooledTempFile::new_in(Self::IN_MEMORY, directory),
        }
    }

    fn push(&mut self, shape: &[usize], values: &[f32]) -> io::Result<()> {
        if self.count == 0 {
            self.row = shape.to_vec();
        }
        self.count += 1;
        self.values.write_all(&little_endian(values))
    }

    fn shape(&self) -> Vec<usize> {
        [&[self.count], &self.row[..]].concat()
    }

    /// Copies the values to `out`.
    fn copy(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.values.rewind()?;
        io::copy(&mut self.values, out)?;
        Ok(())
    }
}

/// Writer of one f32 array in NumPy's format.
pub(crate) struct Npy<W> {
    out: W,
    rows: Rows,
    /// File that receives one name per row.
    names: Option<Sink>,
}

impl<W: Write> Npy<W> {
    /// Creates a writer of the array to `out` and of the row names to `names`. Large arrays use a temporary file in
    /// `directory`.
    pub(crate) fn new(out: W, names: Option<Sink>, directory: &Path) -> Self {
        Self {
            out,
            rows: Rows::new(directory),
            names,
        }
    }

    /// Adds the row of the image `name`.
    pub(crate) fn push(&mut self, name: &str, shape: &[usize], values: &[f32]) -> io::Result<()> {
        if let Some(names) = &mut self.names {
            writeln!(names, "{}", escape_json(name))?;
        }
        self.rows.push(shape, values)
    }

    /// Writes the array. Returns the array's writer and the file of names.
    pub(crate) fn into_parts(mut self) -> io::Result<(W, Option<Sink>)> {
        if self.rows.count > 0 {
            self.out.write_all(&npy::header("<f4", &self.rows.shape()))?;
            self.rows.copy(&mut self.out)?;
        }
        Ok((self.out, self.names))
    }
}

impl Npy<Sink> {
    /// Writes the array. Returns the files that are still to be finished.
    pub(crate) fn finish(self) -> io::Result<Vec<Sink>> {
        let (array, names) = self.into_parts()?;
        Ok(names.into_iter().chain([array]).collect())
    }
}

/// Returns the path of the file with the row names of the array at `path`: `photos.names.txt` for `photos.npy`.
pub(crate) fn names_path(path: &Path) -> PathBuf {
    path.with_extension("names.txt")
}

/// Returns the error for Parquet output in a build without the feature `parquet`.
pub(crate) fn no_parquet() -> anyhow::Error {
    Usage(
        "parquet: this hipvit was built without the feature `parquet`. Install it with: cargo install --locked --path crates/cli --features \
         parquet. Or use npy, safetensors, csv or json",
    )
    .into()
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Named f32 arrays with one row per image. Written at the end.
pub(crate) struct Tensors {
    directory: PathBuf,
    /// Metadata key of the row names.
    kind: &'static str,
    images: Vec<String>,
    /// Metadata besides the row names.
    metadata: BTreeMap<String, String>,
    arrays: BTreeMap<String, Rows>,
}

impl Tensors {
    /// Creates an empty set of arrays. Large arrays use temporary files in `directory`.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            kind: "images",
            images: Vec::new(),
            metadata: BTreeMap::new(),
            arrays: BTreeMap::new(),
        }
    }

    /// Labels the rows as texts instead of images.
    pub(crate) fn of_texts(self) -> Self {
        Self {
            kind: "texts",
            ..self
        }
    }

    /// Starts the row of the next image.
    pub(crate) fn image(&mut self, name: &str) {
        self.images.push(name.to_owned());
    }

    /// Adds the current image's row to one array.
    pub(crate) fn push(
        &mut self,
        array: impl Into<String>,
        shape: &[usize],
        values: &[f32],
    ) -> io::Result<()> {
        let rows = self.arrays.entry(array.into());
        rows.or_insert_with(|| Rows::new(&self.directory))
            .push(shape, values)
    }

    /// Adds an entry to the metadata.
    pub(crate) fn describe(&mut self, key: &str, value: String) {
        self.metadata.insert(key.to_owned(), value);
    }

    /// Writes a safetensors file with the arrays. The metadata contains the row names as JSON.
    pub(crate) fn write(&mut self, out: &mut impl Write) -> Result<()> {
        let mut tensors = Vec::with_capacity(self.arrays.len());
        let mut offset = 0;
        for (name, rows) in &self.arrays {
            let shape = rows.shape();
            let end = offset + shape.iter().product::<usize>() * size_of::<f32>();
            let tensor = TensorInfo {
                dtype: Dtype::F32,
                shape,
                data_offsets: (offset, end),
            };
            tensors.push((name.clone(), tensor));
            offset = end;
        }
        let images = serde_json::to_string(&self.images)?;
        let mut metadata = self.metadata.clone();
        metadata.insert(self.kind.to_owned(), images);
        // In the order of the keys, so that equal results are equal files.
        let metadata = serde_json::to_string(&metadata)?;
        let arrays = serde_json::to_string(&Metadata::new(None, tensors)?)?;
        let comma = if self.arrays.is_empty() { "" } else { "," };
        let mut header = format!("{{\"__metadata__\":{metadata}{comma}{}", &arrays[1..]);
        while !header.len().is_multiple_of(size_of::<u64>()) {
            header.push(' ');
        }
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        for rows in self.arrays.values_mut() {
            rows.copy(out)?;
        }
        Ok(())
    }
}

/// Rejects more names than the header of a safetensors file can hold, before any row is computed.
///
/// # Errors
///
/// Returns [`Usage`], which suggests other formats.
pub(crate) fn check_names_fit(names: impl Iterator<Item = String>) -> Result<()> {
    /// Maximum size of the header in the safetensors libraries.
    const HEADER: usize = 100_000_000;
    /// Upper bound on the size of the rest of the header.
    const REST: usize = 1_000_000;
    // The list is a JSON string within JSON. Each name has escaped quotes, a comma and escapes of its own.
    let length = |name: &str| name.len() + 5 + 2 * name.matches(['"', '\\']).count();
    let total: usize = names.map(|name| length(&name)).sum();
    if total > HEADER - REST {
        let megabytes = total / 1_000_000;
        return Err(Usage(format!(
            "safetensors: the names of the images take {megabytes} MB, and a header has at most 100 MB; use parquet, npy, csv or json"
        ))
        .into());
    }
    Ok(())
}

/// Writer of embeddings as a table with the columns `image` and `embedding` (list of f32). Each row group is written
/// when it is complete.
#[cfg(feature = "parquet")]
pub(crate) struct Parquet {
    out: Sink,
    writer: SerializedFileWriter<Vec<u8>>,
    names: Vec<ByteArray>,
    values: Vec<f32>,
    columns: usize,
}

#[cfg(feature = "parquet")]
impl Parquet {
    /// Number of rows in a row group, which a reader loads at once.
    const GROUP: usize = 16 * 1024;

    /// Creates a writer of an empty table. The column `kind` names the rows.
    ///
    /// # Errors
    ///
    /// Returns an error from the Parquet library.
    pub(crate) fn new(out: Sink, kind: &str) -> Result<Self> {
        let schema = format!(
            "message embeddings {{
                required binary {kind} (UTF8);
                required group embedding (LIST) {{ repeated group list {{ required float element; }} }}
            }}"
        );
        let schema = Arc::new(parse_message_type(&schema)?);
        let properties = Arc::new(WriterProperties::default());
        Ok(Self {
            out,
            writer: SerializedFileWriter::new(Vec::new(), schema, properties)?,
            names: Vec::new(),
            values: Vec::new(),
            columns: 0,
        })
    }

    /// Adds the row of the image `name`.
    pub(crate) fn push(&mut self, name: &str, embedding: &[f32]) -> Result<()> {
        self.names.push(name.into());
        self.values.extend(embedding);
        self.columns = embedding.len();
        if self.names.len() == Self::GROUP {
            self.write_group()?;
        }
        Ok(())
    }

    /// Adds the metadata `key` with its value.
    pub(crate) fn describe(&mut self, key: &str, value: String) {
        self.writer
            .append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }

    /// Writes the remaining rows. Returns the file that is still to be finished.
    pub(crate) fn finish(mut self) -> Result<Sink> {
        if !self.names.is_empty() {
            self.write_group()?;
        }
        let Self { mut out, writer, .. } = self;
        out.write_all(&writer.into_inner()?)?;
        Ok(out)
    }

    fn write_group(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        if let Some(mut column) = group.next_column()? {
            let names = std::mem::take(&mut self.names);
            column.typed::<ByteArrayType>().write_batch(&names, None, None)?;
            column.close()?;
        }
        if let Some(mut column) = group.next_column()? {
            let values = std::mem::take(&mut self.values);
            // No list is empty, and each one begins with the repetition level 0.
            let present = vec![1; values.len()];
            let repetition = (0..values.len()).map(|at| i16::from(at % self.columns > 0));
            let repetition: Vec<i16> = repetition.collect();
            let column_writer = column.typed::<FloatType>();
            column_writer.write_batch(&values, Some(&present), Some(&repetition))?;
            column.close()?;
        }
        group.close()?;
        self.writer.flush()?;
        self.out.write_all(&std::mem::take(self.writer.inner_mut()))?;
        Ok(())
    }
}

/// Placeholder for the writer in a build without the `parquet` feature. The command line rejects the format before this
/// is used.
#[cfg(not(feature = "parquet"))]
pub(crate) struct Parquet(Sink);

#[cfg(not(feature = "parquet"))]
impl Parquet {
    pub(crate) fn new(_: Sink, _: &str) -> Result<Self> {
        Err(no_parquet())
    }

    pub(crate) fn push(&mut self, _: &str, _: &[f32]) -> Result<()> {
        Err(no_parquet())
    }

    pub(crate) fn describe(&mut self, _: &str, _: String) {}

    pub(crate) fn finish(self) -> Result<Sink> {
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_npy_file_has_an_aligned_header_and_the_rows_that_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let mut npy = Npy::new(Vec::new(), None, folder.path());
        npy.push("a", &[2], &[1.0, 2.0]).unwrap();
        npy.push("c", &[2], &[3.0, 4.0]).unwrap();
        let (file, _) = npy.into_parts().unwrap();
        assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
        let length = usize::from(u16::from_le_bytes([file[8], file[9]]));
        assert_eq!((10 + length) % 64, 0);
        let text = std::str::from_utf8(&file[10..10 + length]).unwrap();
        assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"));
        assert!(text.ends_with('\n'));
        assert_eq!(file[10 + length..], little_endian(&[1.0, 2.0, 3.0, 4.0]));
    }

    #[test]
    fn one_extent_is_a_tuple_too() {
        let text = String::from_utf8_lossy(&npy::header("<f4", &[3])).into_owned();
        assert!(text.contains("'shape': (3,), "), "{text}");
    }

    #[test]
    fn names_beyond_the_header_of_safetensors_are_refused() {
        let names = |count| (0..count).map(|_| "photos/0123456789.jpg".to_owned());
        assert!(check_names_fit(names(1000)).is_ok());
        assert!(check_names_fit(names(5_000_000)).is_err());
    }

    #[test]
    fn names_are_beside_the_array() {
        assert_eq!(names_path(Path::new("a/b.npy")), Path::new("a/b.names.txt"));
    }
}
