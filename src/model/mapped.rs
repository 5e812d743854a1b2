//! The memory-mapped weight file: the one place in [`crate::model`] that needs `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::tensor::Bytes;

/// The file's bytes, read from disk as they are touched.
///
/// # Errors
///
/// [`Error::Io`] if the file cannot be opened or mapped.
pub(super) fn map(path: &Path) -> Result<Arc<dyn Bytes>> {
    let file = File::open(path).map_err(|source| Error::io(path, source))?;
    // SAFETY: the map is read-only and private to this process. What could break it is another process that cuts
    // the file short or rewrites it in place while a model is loaded; `model::load` documents that as the caller's
    // part. Writers that put a new file in the old one's place, as safetensors' own do, are no danger.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| Error::io(path, source))?;
    Ok(Arc::new(map))
}
