//! Memory-maps weight files. This is the only module in [`crate::model`] with `unsafe` code.
#![allow(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::tensor::Bytes;
use hipvit_files::regular_file;

/// Maps a file, which is read from disk on first access. Returns its bytes.
///
/// # Errors
///
/// Returns [`Error::Io`] if the file cannot be opened or mapped.
pub(super) fn map(path: &Path) -> Result<Arc<dyn Bytes>> {
    let file = regular_file::open(path).map_err(|source| Error::io(path, source))?;
    // SAFETY: the map is read-only and private to this process. It is invalidated only if another process truncates the
    // file or rewrites it in place while a model is loaded. The documentation of `model::load` requires the caller to
    // prevent this. Replacing the file by a new one, as safetensors' own writers do, is safe.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| Error::io(path, source))?;
    Ok(Arc::new(map))
}
