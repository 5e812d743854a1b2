//! Memory-mapped matrices of embeddings: one `.npy` or `.safetensors` file each.

use std::ops::Range;
use std::path::{Path, PathBuf};

use half::f16;
use half::slice::HalfFloatSliceExt;
use hipvit_files::regular_file;
use memmap2::Mmap;
use safetensors::tensor::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::description::Description;
use crate::error::{Error, Result};
use crate::mapped;
use crate::names::Names;
use crate::npy;

/// Dtype of the stored values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
}

impl Element {
    /// Returns the size of a value in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// Name of the array in safetensors files.
const ARRAY: &str = "embeddings";

/// Maximum bytes of a file of names or a description.
const LONGEST_TEXT: u64 = 1 << 34;

/// A matrix of embeddings in a file.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) element: Element,
    pub(crate) names: Names,
    pub(crate) description: Option<Description>,
    map: Mmap,
    /// Position of the first value in the file.
    data: usize,
}

/// Position and type of a matrix in a file.
struct Layout {
    shape: Vec<usize>,
    element: Element,
    data: usize,
}

impl Shard {
    /// Opens a file, which its extension says the format of.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        match extension(path).as_deref() {
            Some("npy") => Self::open_npy(path),
            Some("safetensors") => Self::open_safetensors(path),
            Some("parquet") => Err(Error::index(
                path,
                "Parquet is compressed and cannot be mapped. Write the embeddings with -o FILE.npy or FILE.safetensors",
            )),
            _ => Err(Error::index(
                path,
                "not a file of embeddings by its extension. Write one with `hipvit embed … -o FILE.npy` or FILE.safetensors",
            )),
        }
    }

    fn open_npy(path: &Path) -> Result<Self> {
        let map = mapped::map(path)?;
        let header = npy::parse(&map).ok_or_else(|| {
            Error::index(
                path,
                "is not a NumPy file. Write one with `hipvit embed` or numpy.save",
            )
        })?;
        let element = match header.descr {
            "<f4" => Element::F32,
            "<f2" => Element::F16,
            other => {
                let reason = format!(
                    "has elements of the dtype `{other}`. Convert them with numpy.ndarray.astype to float32 or float16"
                );
                return Err(Error::index(path, reason));
            }
        };
        if header.fortran {
            return Err(Error::index(
                path,
                "is in Fortran order. Save numpy.ascontiguousarray of it",
            ));
        }
        let layout = Layout {
            shape: header.shape,
            element,
            data: header.data,
        };
        let names = match text(&path.with_extension("names.txt"))? {
            Some(text) => Names::lines(text),
            None => Names::None,
        };
        let description = path.with_extension(Description::EXTENSION);
        let description = text(&description)?
            .map(|text| describe(&description, &text))
            .transpose()?;
        Self::new(path, map, layout, names, description)
    }

    fn open_safetensors(path: &Path) -> Result<Self> {
        let map = mapped::map(path)?;
        let damaged = |error: safetensors::SafeTensorError| {
            Error::index(path, format!("is not a safetensors file: {error}"))
        };
        let (header, metadata) = SafeTensors::read_metadata(&map).map_err(damaged)?;
        let array = metadata.info(ARRAY).ok_or_else(|| {
            Error::index(
                path,
                format!("has no array `{ARRAY}`. Write the file with `hipvit embed`"),
            )
        })?;
        let element = match array.dtype {
            Dtype::F32 => Element::F32,
            Dtype::F16 => Element::F16,
            other => {
                let reason = format!("`{ARRAY}` has the dtype {other:?}. Only F32 and F16 are supported");
                return Err(Error::index(path, reason));
            }
        };
        let layout = Layout {
            shape: array.shape.clone(),
            element,
            data: size_of::<u64>() + header + array.data_offsets.0,
        };
        let facts = metadata.metadata().as_ref();
        let value = |key: &str| facts.and_then(|facts| facts.get(key));
        let names = match value("images").or_else(|| value("texts")) {
            Some(list) => Names::List(serde_json::from_str(list).map_err(|error| {
                Error::index(path, format!("the names in its metadata are damaged: {error}"))
            })?),
            None => Names::None,
        };
        let description = value(Description::KEY)
            .map(|text| describe(path, text))
            .transpose()?;
        Self::new(path, map, layout, names, description)
    }

    fn new(
        path: &Path,
        map: Mmap,
        layout: Layout,
        names: Names,
        description: Option<Description>,
    ) -> Result<Self> {
        let Layout { shape, element, data } = layout;
        let &[rows, width] = &shape[..] else {
            let reason = format!("has an array of shape {shape:?}, not a matrix with a row per embedding");
            return Err(Error::index(path, reason));
        };
        if width == 0 {
            return Err(Error::index(path, "has rows without values"));
        }
        let bytes = rows
            .checked_mul(width)
            .and_then(|values| values.checked_mul(element.size()));
        let end = bytes.and_then(|bytes| bytes.checked_add(data));
        if end.is_none_or(|end| end > map.len()) {
            return Err(Error::index(
                path,
                "is shorter than its header says. Write it again",
            ));
        }
        if !data.is_multiple_of(element.size()) {
            return Err(Error::index(
                path,
                "its values are not aligned. Write it with `hipvit embed`",
            ));
        }
        if let Some(count) = names.len()
            && count != rows
        {
            let reason = format!("has {rows} rows, but {count} names. Write both again with `hipvit embed`");
            return Err(Error::index(path, reason));
        }
        Ok(Self {
            path: path.to_owned(),
            rows,
            width,
            element,
            names,
            description,
            map,
            data,
        })
    }

    /// Returns the bytes of a range of rows, in the dtype of the file.
    pub(crate) fn bytes(&self, rows: Range<usize>) -> &[u8] {
        let row = self.width * self.element.size();
        &self.map[self.data + rows.start * row..self.data + rows.end * row]
    }

    /// Returns a range of rows in f32: the mapped values, or those that it converts to `scratch`.
    pub(crate) fn values<'a>(&'a self, rows: Range<usize>, scratch: &'a mut Vec<f32>) -> &'a [f32] {
        let bytes = self.bytes(rows);
        match self.element {
            Element::F32 => bytemuck::cast_slice(bytes),
            Element::F16 => {
                let halves: &[f16] = bytemuck::cast_slice(bytes);
                scratch.resize(halves.len(), 0.0);
                halves.convert_to_f32_slice(scratch);
                scratch
            }
        }
    }
}

/// Returns the extension of a path in lower case.
pub(crate) fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

/// Reads a text file. Returns `None` if there is none.
fn text(path: &Path) -> Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = regular_file::read_within(path, LONGEST_TEXT).map_err(Error::io(path))?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| Error::index(path, "is not UTF-8. Write it again with `hipvit embed`"))
}

fn describe(path: &Path, text: &str) -> Result<Description> {
    let mut json = serde_json::Deserializer::from_str(text);
    Description::deserialize(&mut json)
        .map_err(|error| Error::index(path, format!("is not a description of embeddings: {error}")))
}
