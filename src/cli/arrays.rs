//! Arrays with one row per image, as files: NumPy's format, safetensors, Parquet.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use anyhow::Result;
use safetensors::tensor::{Dtype, TensorView};

/// Writes one f32 array in NumPy's format, row after row. It is written here because the crates that do bring a parser
/// generator and need a C compiler, and the header is one line.
pub struct Npy<W> {
    out: W,
    rows: usize,
    written: usize,
    /// The extents of a row, known with the first one.
    row: Option<Vec<usize>>,
}

impl<W: Write> Npy<W> {
    /// An array of `rows` rows.
    pub fn new(out: W, rows: usize) -> Self {
        Self {
            out,
            rows,
            written: 0,
            row: None,
        }
    }

    /// Writes row `index`. Those before it that were not written become NaN, so that a row's index is its image's.
    pub fn push(&mut self, index: usize, shape: &[usize], values: &[f32]) -> io::Result<()> {
        if self.row.is_none() {
            self.out.write_all(&header(self.rows, shape))?;
            self.row = Some(shape.to_vec());
        }
        self.fill(index)?;
        self.write(values)?;
        self.written = index + 1;
        Ok(())
    }

    /// Fills up the array and gives back what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.fill(self.rows)?;
        Ok(self.out)
    }

    fn fill(&mut self, until: usize) -> io::Result<()> {
        let Some(row) = &self.row else { return Ok(()) };
        let missing = vec![f32::NAN; row.iter().product()];
        while self.written < until {
            self.write(&missing)?;
            self.written += 1;
        }
        Ok(())
    }

    fn write(&mut self, values: &[f32]) -> io::Result<()> {
        self.out.write_all(&little_endian(values))
    }
}

/// Version 1.0: a Python literal, filled up with spaces so that the data is aligned to 64 bytes.
fn header(rows: usize, shape: &[usize]) -> Vec<u8> {
    const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
    let extents: String = shape.iter().map(|extent| format!(", {extent}")).collect();
    let comma = if shape.is_empty() { "," } else { "" };
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}{extents}{comma}), }}");
    while !(MAGIC.len() + 2 + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    // A few extents are far from 64 KiB of text.
    let length = (text.len() as u16).to_le_bytes();
    [MAGIC, &length, text.as_bytes()].concat()
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Named f32 arrays with one row per image, which are written at the end.
#[derive(Default)]
pub struct Tensors {
    images: Vec<String>,
    arrays: BTreeMap<String, Rows>,
}

#[derive(Default)]
struct Rows {
    row: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensors {
    /// Begins the row of the next image.
    pub fn image(&mut self, name: &str) {
        self.images.push(name.to_owned());
    }

    /// The image's row of one array.
    pub fn push(&mut self, array: impl Into<String>, shape: &[usize], values: &[f32]) {
        let rows = self.arrays.entry(array.into()).or_default();
        rows.row = shape.to_vec();
        rows.bytes.extend(little_endian(values));
    }

    /// Writes safetensors: the arrays, and the images' names as JSON in the metadata.
    pub fn write(&self, mut out: impl Write) -> Result<()> {
        let mut views = Vec::with_capacity(self.arrays.len());
        for (name, rows) in &self.arrays {
            let shape = [&[self.images.len()], &rows.row[..]].concat();
            views.push((name, TensorView::new(Dtype::F32, shape, &rows.bytes)?));
        }
        let images = serde_json::to_string(&self.images)?;
        let metadata = HashMap::from([("images".to_owned(), images)]);
        out.write_all(&safetensors::serialize(views, Some(metadata))?)?;
        Ok(())
    }
}

/// Embeddings as a table with the columns `image` and `embedding`, a list of f32.
#[cfg(feature = "parquet")]
pub fn write_parquet(mut out: impl Write, images: &[String], embeddings: &[Vec<f32>]) -> Result<()> {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType, FloatType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    const SCHEMA: &str = "message embeddings {
        required binary image (UTF8);
        required group embedding (LIST) { repeated group list { required float element; } }
    }";
    /// Rows that a reader has in memory at once.
    const GROUP: usize = 16 * 1024;
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(WriterProperties::default()))?;
    for (images, embeddings) in images.chunks(GROUP).zip(embeddings.chunks(GROUP)) {
        let mut group = writer.next_row_group()?;
        let names: Vec<ByteArray> = images.iter().map(|name| name.as_str().into()).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<ByteArrayType>().write_batch(&names, None, None)?;
            column.close()?;
        }
        if let Some(mut column) = group.next_column()? {
            let values: Vec<f32> = embeddings.iter().flatten().copied().collect();
            // No list is empty; each begins with the repetition level 0.
            let present = vec![1; values.len()];
            let rows = embeddings
                .iter()
                .flat_map(|row| (0..row.len()).map(|at| i16::from(at > 0)));
            let repetition: Vec<i16> = rows.collect();
            let column_writer = column.typed::<FloatType>();
            column_writer.write_batch(&values, Some(&present), Some(&repetition))?;
            column.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    out.write_all(&bytes)?;
    Ok(())
}

/// As with the feature, but an error, which the command line gives earlier.
#[cfg(not(feature = "parquet"))]
pub fn write_parquet(_: impl Write, _: &[String], _: &[Vec<f32>]) -> Result<()> {
    Err(super::format::no_parquet())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_npy_file_has_an_aligned_header_and_a_nan_row_for_each_missing_image() {
        let mut npy = Npy::new(Vec::new(), 4);
        npy.push(1, &[2], &[1.0, 2.0]).unwrap();
        npy.push(2, &[2], &[3.0, 4.0]).unwrap();
        let file = npy.finish().unwrap();
        assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
        let length = usize::from(u16::from_le_bytes([file[8], file[9]]));
        assert_eq!((10 + length) % 64, 0);
        let text = std::str::from_utf8(&file[10..10 + length]).unwrap();
        assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }"));
        assert!(text.ends_with('\n'));
        let values: Vec<f32> = file[10 + length..]
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        assert_eq!(values.len(), 8);
        assert_eq!(values[2..6], [1.0, 2.0, 3.0, 4.0]);
        assert!(
            [&values[..2], &values[6..]]
                .concat()
                .iter()
                .all(|value| value.is_nan())
        );
    }

    #[test]
    fn one_extent_is_a_tuple_too() {
        let text = String::from_utf8_lossy(&header(3, &[])).into_owned();
        assert!(text.contains("'shape': (3,), "), "{text}");
    }
}
