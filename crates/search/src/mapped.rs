//! Memory-maps files of embeddings. This is the only module of the crate with `unsafe` code.
#![allow(unsafe_code)]

use std::path::Path;

use hipvit_files::regular_file;
use memmap2::Mmap;

use crate::error::{Error, Result};

/// Maps a regular file, which is read from disk on first access.
///
/// # Errors
///
/// Returns [`Error::Io`] if the file cannot be opened or mapped.
pub(crate) fn map(path: &Path) -> Result<Mmap> {
    let file = regular_file::open(path).map_err(Error::io(path))?;
    // SAFETY: the map is read-only and private to this process. It is invalidated only if another process truncates the
    // file or rewrites it in place while the index is open, which the documentation of `Index::open` rules out. `hipvit
    // embed` replaces files by new ones.
    unsafe { Mmap::map(&file) }.map_err(Error::io(path))
}
